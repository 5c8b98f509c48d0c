"""The end of a call: gRPC's status codes, and the error of a failed call."""

from enum import IntEnum


class Status(IntEnum):
    """gRPC's codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """A call ended with a status other than OK. Servicers raise it to refuse, clients' calls raise it."""

    def __init__(self, code: Status, details: str) -> None:
        """Store the code, and `details`, the text for it."""
        super().__init__(code, details)
        self.code = code
        self.details = details

    def __str__(self) -> str:
        """Return `FAILED_PRECONDITION: the text`."""
        return f"{self.code.name}: {self.details}"
