"""Whatever the input: an answer or a refusal of ours, never anything else. `python -m tests.fuzz TARGET`."""
