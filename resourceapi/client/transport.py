"""What objects need of a client: requests, streams, patience and limits. `AsyncClient` is one."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

MIB = 1024 * 1024


class Limits(Struct, frozen=True):
    """How much of an answer is taken, in bytes of JSON; more of it is InvalidAnswer.

    `object`: API servers take no request of more than 3 MiB, so no object is larger than that and its managed fields.
    `collection`: the pages of one list together, and what one watch holds at a time; Python needs a few times as much.
    """

    object: int = 4 * MIB
    collection: int = 64 * MIB


class Answer(NamedTuple):
    """A JSON value, and how many bytes it had."""

    value: Any
    size: int


class Transport(Protocol):
    """Requests and streams of lines over connections to one API server."""

    limits: Limits

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        max_bytes: int = 0,
    ) -> Answer:
        """Return the answer to a request, of at most `max_bytes` bytes. Raises Refused, Unreachable, ClientError."""
        ...

    def lines(
        self, path: str, query: Mapping[str, str], seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream the lines of an answer for so long. Raises Refused, Unreachable, ClientError."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts. Raises Unreachable if no more of them are made."""
        ...
