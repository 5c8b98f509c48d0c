"""Benchmarks: each prints a table and writes a JSON file; never part of the tests."""
