"""Pods: the rules for them, their defaults, their immutable fields, and the subresources of a pod."""
