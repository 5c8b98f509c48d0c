"""Faults at every system call by which the daemon changes something: `python -m tests.faults`."""
