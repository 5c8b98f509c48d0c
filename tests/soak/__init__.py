"""Hours of a node's life in minutes, to measure growth: `python -m tests.soak`."""
