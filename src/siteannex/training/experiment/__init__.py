"""Experiment files: their shape, what can be wrong with them, what they come to."""
