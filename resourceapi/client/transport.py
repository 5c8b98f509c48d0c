"""The interface that resources need of a client: requests, streams, waits and limits. `AsyncClient` implements it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

MIB = 1024 * 1024


class Limits(Struct, frozen=True):
    """The largest answers that are accepted, in bytes of JSON; a larger one is InvalidAnswer.

    `object`: API servers accept requests of at most 3 MiB, so an object is at most that large plus its managed fields.
    `collection`: all pages of one list together, and the objects of one watch; in memory they need a few times as much.
    """

    object: int = 4 * MIB
    collection: int = 64 * MIB


class Answer(NamedTuple):
    """A JSON value and its size in bytes."""

    value: Any
    size: int


class Transport(Protocol):
    """Sends requests to one API server and streams lines from it."""

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
        """Stream the lines of an answer for at most `seconds`. Raises Refused, Unreachable, ClientError."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts. Raises Unreachable if no more attempts are made."""
        ...
