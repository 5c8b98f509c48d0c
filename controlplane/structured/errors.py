"""Errors of an allocation.

A plain `AllocationError` concerns the input (a bad selector, an unknown class) and is the same on every node.
`NodeError` concerns one node; other nodes can be tried. `AllocationAborted` means that the time limit passed or that
the caller cancelled.
"""


class AllocationError(Exception):
    """The claims cannot be allocated on any node; the text names claim, request and cause."""


class NodeError(AllocationError):
    """The claims cannot be allocated on this node because of a fault there; other nodes can still work."""


class AllocationAborted(AllocationError):
    """The search was stopped; `__cause__` is a TimeoutError or a `Cancelled`."""


class Cancelled(Exception):
    """The caller cancelled the search."""


class ClassNotFound(LookupError):
    """There is no device class of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f'deviceclass.resource.k8s.io "{name}" not found')
