"""List and watch: all objects first, then every change, even if connections break in between.

A watch that ends is resumed at its last version. If that version has expired (410), everything is listed again. The
delay grows with each failure in a row; only a stream that stayed open for a while ends the row.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from resourceapi.client.backoff import chance, delay
from resourceapi.client.errors import ClientError, InvalidAnswer, Refused, Unreachable
from resourceapi.client.transport import Transport
from resourceapi.objects import DecodeError, parse_json

T = TypeVar("T")
OnFailure = Callable[[ClientError], object]
"""Called for every failed attempt that will be repeated."""

OBJECT_OVERHEAD = 1024  # bytes of memory that an object needs besides its JSON
_MIN_SECONDS, _MAX_SECONDS = 240, 480  # seconds: the range of the requested watch duration (timeoutSeconds)
_GRACE = 30.0  # seconds that a watch can last longer than requested
_MIN_STREAM_SECONDS = 1.0  # seconds; a stream that ends earlier counts as failed
_BURST, _RATE = 5000, 1000  # events at once, and per second after that; further events wait in the connection


class Event(NamedTuple, Generic[T]):
    """LISTED contains all existing objects and replaces everything known before; other events contain one object.

    `version` is the version of the list; it is empty in other events, whose object has its own.
    """

    type: Literal["LISTED", "ADDED", "MODIFIED", "DELETED"]
    items: tuple[T, ...]
    version: str = ""

    @property
    def object(self) -> T:
        """The object of an event that has one."""
        return self.items[0]


class Page(NamedTuple, Generic[T]):
    """Listed objects, the version of the list, and `weight`: bytes of JSON plus an overhead for each object."""

    items: tuple[T, ...]
    version: str
    weight: int = 0


async def watch(
    transport: Transport,
    path: Callable[[], str],
    query: Mapping[str, str],
    listed: Callable[[], Awaitable[Page[T]]],
    read: Callable[[Any], T],
    on_failure: OnFailure | None,
) -> AsyncGenerator[Event[T], None]:
    """Yield events. The generator never ends by itself; close it (`contextlib.aclosing`).

    Raises Refused if a repetition would not help (401, 403, 404 and other faults of the request), other ClientErrors
    that are not transient, and DecodeError.
    """
    loop = asyncio.get_running_loop()
    held = _DeliveredObjects(transport.limits.collection)
    version, failures = "", 0
    while True:
        opened = float("inf")
        failure: ClientError | None = None
        try:
            if not version:
                page = await listed()
                version = page.version
                held.replace(page)
                yield Event("LISTED", page.items, version)
            # random, so that clients do not all return at once
            seconds = _MIN_SECONDS + int((_MAX_SECONDS - _MIN_SECONDS) * chance())
            events = 0
            async with transport.lines(path(), {**query, **_stream(version, seconds)}, seconds + _GRACE) as lines:
                opened = loop.time()
                async for line in lines:
                    change, value, version = _parsed(line, version)
                    events += 1
                    await _limit_rate(opened, events)
                    if change != "BOOKMARK":
                        held.change(change, value, len(line))
                        yield Event(change, (read(value),))
        except ClientError as error:
            if not error.is_transient:
                raise
            failure = error
        if loop.time() - opened > _MIN_STREAM_SECONDS:
            failures = 0
            if failure is None:
                continue
        failures += 1
        is_expired = isinstance(failure, Refused) and failure.is_expired
        if (
            is_expired
            or isinstance(failure, InvalidAnswer)
            or (isinstance(failure, Refused) and failure.is_version_too_large)
        ):
            version = ""
        if is_expired and failures == 1:
            continue  # normal after a time without a connection, so neither reported nor delayed
        if on_failure is not None:
            on_failure(failure or Unreachable(f"watch {path()}: ended at once"))
        retry_after = (isinstance(failure, Refused) and failure.retry_after) or 0.0
        await transport.sleep(max(delay(failures), delay(failures, retry_after)))


class _DeliveredObjects:
    """The size of the objects that a watch has delivered and not deleted, which the receiver keeps in memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._weights: dict[object, int] = {}
        self._total = 0

    def replace(self, page: Page[Any]) -> None:
        self._weights.clear()
        self._total = page.weight

    def change(self, change: str, value: dict[str, Any], size: int) -> None:
        """Account for an event. Raises InvalidAnswer if the objects exceed `max_bytes`."""
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        key = str(metadata.get("namespace")), str(metadata.get("name"))
        self._total -= self._weights.pop(key, 0)
        if change != "DELETED":
            self._weights[key] = size + OBJECT_OVERHEAD
            self._total += self._weights[key]
        if self._total > self._max_bytes:
            raise InvalidAnswer(f"there are more objects than {self._max_bytes} bytes can hold")


def _stream(version: str, seconds: int) -> dict[str, str]:
    return {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(seconds),
    }


def _parsed(line: bytes, version: str) -> tuple[Any, dict[str, Any], str]:
    """Return an event's type, its object, and the version at which to resume. Raises Refused, InvalidAnswer."""
    try:
        event = parse_json(line)
    except DecodeError as error:
        raise InvalidAnswer(f"an event is no JSON: {error}") from error
    change, value = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if not isinstance(value, dict) or change not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"):
        raise InvalidAnswer("an event has no type that is known, or no object")
    if change == "ERROR":
        code = value.get("code")
        raise Refused.of_status(value, code if type(code) is int else 500)
    metadata = value.get("metadata")
    found = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return change, value, found if isinstance(found, str) and found else version


async def _limit_rate(began: float, events: int) -> None:
    """Sleep if events arrive faster than the limit, so that an endless stream does not block the event loop."""
    now = asyncio.get_running_loop().time()
    ahead = (events - _BURST) / _RATE - (now - began)
    if ahead > 0:
        await asyncio.sleep(ahead)
