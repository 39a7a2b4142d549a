"""`why`: jobs that do not run, pilots that wait, annexes and their story."""
