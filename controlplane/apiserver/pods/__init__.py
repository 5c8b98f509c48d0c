"""Pods: what they must be, what they are given, what may change of them, and what is done with them."""
