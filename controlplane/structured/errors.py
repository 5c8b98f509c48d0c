"""What can go wrong in an allocation.

A plain `AllocationError` concerns the input (a bad selector, an unknown class): no node can help. `NodeError` concerns
one node: others may be tried. `AllocationAborted` says that the time was up or the caller gave up.
"""


class AllocationError(Exception):
    """The claims cannot be allocated anywhere; the text names claim, request and cause."""


class NodeError(AllocationError):
    """The claims cannot be allocated on this node because of a fault there; other nodes may do."""


class AllocationAborted(AllocationError):
    """The search was stopped; `__cause__` is a TimeoutError or a `Cancelled`."""


class Cancelled(Exception):
    """The caller asked to stop."""


class ClassNotFound(LookupError):
    """There is no device class of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f'deviceclass.resource.k8s.io "{name}" not found')
