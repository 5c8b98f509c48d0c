"""List and watch: all objects first, then every change, whatever happens to connections in between.

A watch that ends is taken up where it was; when the server has forgotten that place (410), everything is listed anew.
"""

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import urllib3

from resourceapi.client.errors import ClientError, Refused, Unreachable
from resourceapi.client.patience import pause

if TYPE_CHECKING:
    from resourceapi.client.http import Client

T = TypeVar("T")

_SHORTEST, _LONGEST = 240, 480
_GRACE = 30.0
_SHORTEST_LIFE = 1.0  # a stream that ends earlier, without an event, has failed


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


class Watch(Generic[T]):
    """Iterate it for the events. It never ends by itself: `close`, from any thread, ends it.

    `on_failure` is told, by the thread that iterates, of every attempt that failed and will be repeated.
    Raises Refused for what waiting cannot mend (401, 403, 404 and other faults of the request).
    """

    def __init__(
        self,
        client: "Client",
        path: Callable[[], str],
        query: Mapping[str, str],
        listed: Callable[[], tuple[tuple[T, ...], str]],
        read: Callable[[Any], T],
        stop: threading.Event,
        on_failure: Callable[[ClientError], object] | None = None,
    ) -> None:
        self._client, self._path, self._query = client, path, query
        self._on_failure = on_failure
        self._listed, self._read, self._stop = listed, read, stop
        self._response: urllib3.BaseHTTPResponse | None = None
        self._lock = threading.Lock()
        self._version = ""
        self._events = self._run()

    def __enter__(self) -> "Watch[T]":
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event[T]]:
        return self._events

    def close(self) -> None:
        """End the iteration, also while it waits for the server."""
        with self._lock:
            self._stop.set()
            if self._response is not None:
                with contextlib.suppress(RuntimeError, ValueError):  # the server has ended it already
                    self._response.shutdown()

    def _run(self) -> Iterator[Event[T]]:
        failure: ClientError
        failures = 0
        while not self._stop.is_set():
            try:
                if not self._version:
                    items, self._version = self._listed()
                    yield Event("LISTED", items, self._version)
                began = time.monotonic()
                for event in self._stream():
                    failures, began = 0, 0.0
                    if event is not None:
                        yield event
                if time.monotonic() - began > _SHORTEST_LIFE:
                    continue
                failure, asked = Unreachable(f"watch {self._path()}: ended at once"), None
            except Refused as error:
                if error.is_expired:
                    self._version = ""
                    continue
                if error.code < 500 and error.code != 429:
                    raise
                if error.is_ahead:
                    self._version = ""
                failure, asked = error, error.retry_after
            except Unreachable as error:
                failure, asked = error, None
            if self._stop.is_set():
                return
            if self._on_failure is not None:
                self._on_failure(failure)
            failures += 1
            self._stop.wait(pause(failures, asked))

    def _stream(self) -> Iterator[Event[T] | None]:
        """Events from the last version on (None for a bookmark); ends when the server ends it."""
        seconds = random.randint(_SHORTEST, _LONGEST)  # noqa: S311 - so that clients do not come back all at once
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        path = self._path()
        response = self._client.open("GET", path, query=query, stream=True, read_timeout=seconds + _GRACE)
        with self._lock:
            if self._stop.is_set():
                response.close()
                return
            self._response = response
        try:
            for line in _lines(response):
                value = json.loads(line)
                obj = value.get("object") or {}
                if value.get("type") == "ERROR":
                    raise _error(obj)
                self._version = str((obj.get("metadata") or {}).get("resourceVersion") or self._version)
                yield None if value.get("type") == "BOOKMARK" else Event(value["type"], (self._read(obj),))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if not self._stop.is_set():
                raise Unreachable(f"watch {path}: {error}") from error
        finally:
            with self._lock:
                self._response = None
            response.close()


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a body as they come; a last one that is cut off is dropped."""
    rest = b""
    while piece := response.read1():
        *lines, rest = (rest + piece).split(b"\n")
        yield from filter(None, lines)


def _error(status: dict[str, Any]) -> Refused:
    code, details = int(status.get("code") or 500), status.get("details") or {}
    seconds = details.get("retryAfterSeconds")
    return Refused(code, str(status.get("reason") or ""), str(status.get("message") or ""), details, seconds)
