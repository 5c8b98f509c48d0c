"""Errors: the text names the object, the reason and what to do."""


class K8srmError(Exception):
    """An object is missing or cannot be used, or the pod cannot be scheduled."""


class SolveTimeout(K8srmError):
    """The search took longer than its limit."""
