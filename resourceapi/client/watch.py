"""List and watch: all objects first, then every change, whatever happens to connections in between.

A watch that ends is taken up where it was; when the server has forgotten that place (410), everything is listed again.
What fails is tried again later each time; only a stream that lived for a while shows that the server is well.
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
"""Is told of every attempt that failed and will be repeated."""

OBJECT_OVERHEAD = 1024  # bytes that an object costs beside its JSON
_SHORTEST, _LONGEST = 240, 480  # seconds that the server is asked to go on for
_GRACE = 30.0  # seconds that it may take longer
_SHORTEST_LIFE = 1.0  # seconds; a stream that ends earlier has failed
_BURST, _RATE = 5000, 1000  # events at once, and in a second after that: more are left to wait in the connection


class Event(NamedTuple, Generic[T]):
    """LISTED brings all objects there are, and everything known before is void; the others bring one.

    `version` is that of the list; the other events have their object's.
    """

    type: Literal["LISTED", "ADDED", "MODIFIED", "DELETED"]
    items: tuple[T, ...]
    version: str = ""

    @property
    def object(self) -> T:
        """The one object."""
        return self.items[0]


class Page(NamedTuple, Generic[T]):
    """Listed objects, the version of the list, and what they weigh: bytes of JSON and an overhead for each."""

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
    """Yield events. It never ends by itself; close it (`contextlib.aclosing`).

    Raises Refused for what waiting cannot mend (401, 403, 404 and other faults of the request), other ClientErrors that
    are not transient, and DecodeError.
    """
    loop = asyncio.get_running_loop()
    held = _Held(transport.limits.collection)
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
            seconds = _SHORTEST + int((_LONGEST - _SHORTEST) * chance())  # clients must not come back together
            events = 0
            async with transport.lines(path(), {**query, **_stream(version, seconds)}, seconds + _GRACE) as lines:
                opened = loop.time()
                async for line in lines:
                    change, value, version = _parsed(line, version)
                    events += 1
                    await _paced(opened, events)
                    if change != "BOOKMARK":
                        held.change(change, value, len(line))
                        yield Event(change, (read(value),))
        except ClientError as error:
            if not error.is_transient:
                raise
            failure = error
        if loop.time() - opened > _SHORTEST_LIFE:
            failures = 0
            if failure is None:
                continue
        failures += 1
        is_expired = isinstance(failure, Refused) and failure.is_expired
        if is_expired or isinstance(failure, InvalidAnswer) or (isinstance(failure, Refused) and failure.is_ahead):
            version = ""
        if is_expired and failures == 1:
            continue  # as happens now and then, after a while without a connection
        if on_failure is not None:
            on_failure(failure or Unreachable(f"watch {path()}: ended at once"))
        retry_after = (isinstance(failure, Refused) and failure.retry_after) or 0.0
        await transport.sleep(max(delay(failures), delay(failures, retry_after)))


class _Held:
    """What a watch has brought and not taken back: somebody keeps that in memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._weights: dict[object, int] = {}
        self._total = 0

    def replace(self, page: Page[Any]) -> None:
        self._weights.clear()
        self._total = page.weight

    def change(self, change: str, value: dict[str, Any], size: int) -> None:
        """Take note of an event. Raises InvalidAnswer for more than anybody can keep."""
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
    """The type of an event, its object, and the version at which to go on. Raises Refused, InvalidAnswer."""
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


async def _paced(began: float, events: int) -> None:
    """Let a server that never stops have its turn, and everybody else theirs."""
    now = asyncio.get_running_loop().time()
    ahead = (events - _BURST) / _RATE - (now - began)
    if ahead > 0:
        await asyncio.sleep(ahead)
