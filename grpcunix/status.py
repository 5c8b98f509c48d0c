"""How a call ends: gRPC's status codes, and the error of a call that did not go well."""

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
    """A call ended with another status than OK. Servicers raise it to refuse, calls of clients raise it."""

    def __init__(self, code: Status, details: str) -> None:
        """`details` is the text that goes with the code."""
        super().__init__(code, details)
        self.code = code
        self.details = details

    def __str__(self) -> str:
        """`FAILED_PRECONDITION: the text`."""
        return f"{self.code.name}: {self.details}"
