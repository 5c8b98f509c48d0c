"""Hours of a node's life in minutes, and what grows meanwhile: `python -m tests.soak`."""
