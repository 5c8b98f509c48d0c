"""What can go wrong: the text says which object, why, and what to do."""


class K8srmError(Exception):
    """An object is missing or cannot be used, or the pod cannot be scheduled."""


class SolveTimeout(K8srmError):
    """The search took longer than it may."""
