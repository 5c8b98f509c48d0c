"""Hours of a node's activity in minutes, to measure growth: `python -m tests.soak`."""
