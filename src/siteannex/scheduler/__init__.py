"""Batch schedulers as pure text: the commands to send and how to read the answers."""
