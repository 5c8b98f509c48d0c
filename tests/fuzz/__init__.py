"""For any input, the result is an answer or one of our own errors. `python -m tests.fuzz TARGET`."""
