"""Faults at every system call with which the daemon changes something: `python -m tests.faults`."""
