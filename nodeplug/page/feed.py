"""The data of the page: the complete state at first, then changes, in messages that all clients share.

Rules:
1. Without clients nothing is read. With clients, events trigger a new picture, at most once in `DURATION_FACTOR` times
   its duration, and every `MAX_INTERVAL` seconds for changes without an event.
2. For a client only the number of its last message is stored; one that is too slow gets the complete state again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from hostdevices.errors import HostExhausted
from nodeplug.control import events, picture
from nodeplug.control.client import NotRunning
from nodeplug.control.protocol import Refusal
from telemetry import Event

MAX_INTERVAL: Final = 10.0
"""Seconds between pictures when nothing happens: the timeout of `events`."""
MIN_INTERVAL: Final = 0.5
"""Seconds between pictures when much happens."""
DURATION_FACTOR: Final = 10
MAX_EVENTS: Final = 100
_RETRY = 2.0  # seconds until a daemon that does not answer is asked again
_KEEPALIVE = 15.0  # seconds of silence after which viewers get a comment, which keeps the connection alive
Ask: TypeAlias = Callable[[Struct, type[Any]], Awaitable[Any]]
"""Asks the daemon a question. Raises `Refusal`, and `NotRunning` if there is no daemon."""
_Rows: TypeAlias = Mapping[str, Struct]
log = logging.getLogger("nodeplug")


class _Snapshot(Struct, frozen=True):
    """The known state at one moment. `trouble` is the reason why it is not newer."""

    about: picture.NodeSummary | None = None
    tiles: _Rows = {}
    leases: _Rows = {}
    trouble: str = ""


class Feed:
    """The messages, while there are viewers. Belongs to the event loop."""

    def __init__(self, ask: Ask) -> None:
        """Prepare; `ask` asks the daemon."""
        self._ask = ask
        self._snapshot = _Snapshot()
        self._events: tuple[Event, ...] = ()
        self._number = 0  # of the latest message; 0 before the first picture
        self._latest = b""  # the changes since the message before it
        self._whole = b""  # the full state, for all viewers that connect before the next message
        self._next = asyncio.Event()
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """Yield an event with the full state, then one for each change; periodically a comment if nothing changes."""
        self._viewers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._refresh(), name="page")
        try:
            sent = 0
            while True:
                if sent == self._number:
                    upcoming = self._next
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_KEEPALIVE):
                            await upcoming.wait()
                if sent == self._number:
                    yield b":\n\n"
                    continue
                is_next = sent and sent == self._number - 1
                sent = self._number
                yield self._latest if is_next else self._full_state()
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._task.cancel()
                self._task, self._snapshot, self._events = None, _Snapshot(), ()
                self._number, self._latest, self._whole = 0, b"", b""

    async def _refresh(self) -> None:
        after, log_began, loop = 0, 0.0, asyncio.get_running_loop()
        while True:
            try:
                wait = MAX_INTERVAL if log_began else 0.0  # the first time, at once and everything
                happened: events.Answer = await self._ask(events.Question(after, log_began, wait), events.Answer)
                began = loop.time()
                found: picture.Answer = await self._ask(picture.Question(), picture.Answer)
                took = loop.time() - began
                self._publish(_snapshot(found), happened.events[-MAX_EVENTS:])
                after, log_began = happened.latest, happened.log
                await asyncio.sleep(max(MIN_INTERVAL, took * DURATION_FACTOR))
            except (HostExhausted, NotRunning, Refusal) as error:
                self._publish(msgspec.structs.replace(self._snapshot, trouble=str(error)), ())
                await asyncio.sleep(_RETRY)
            except Exception:  # a defect of ours must not leave viewers without a message
                log.exception("the state for the page could not be read")
                self._publish(msgspec.structs.replace(self._snapshot, trouble="nodeplug failed; see its log"), ())
                await asyncio.sleep(_RETRY)

    def _publish(self, snapshot: _Snapshot, happened: tuple[Event, ...]) -> None:
        before, self._snapshot = self._snapshot, snapshot
        self._events = (*self._events, *happened)[-MAX_EVENTS:]
        if snapshot == before and not happened:
            return
        self._number, self._whole = self._number + 1, b""
        self._latest = _message(
            snapshot,
            _changed(before.tiles, snapshot.tiles),
            _changed(before.leases, snapshot.leases),
            happened,
            gone={"tiles": _gone(before.tiles, snapshot.tiles), "leases": _gone(before.leases, snapshot.leases)},
        )
        self._next.set()
        self._next = asyncio.Event()

    def _full_state(self) -> bytes:
        self._whole = self._whole or _message(
            self._snapshot, self._snapshot.tiles, self._snapshot.leases, self._events, gone=None
        )
        return self._whole


def _snapshot(found: picture.Answer) -> _Snapshot:
    return _Snapshot(
        found.about,
        {tile.id: tile for tile in found.tiles},
        {f"{lease.resource} {lease.api} {lease.unit}": lease for lease in found.leases},
    )


def _changed(before: _Rows, now: _Rows) -> _Rows:
    return {key: row for key, row in now.items() if before.get(key) != row}


def _gone(before: _Rows, now: _Rows) -> list[str]:
    return [key for key in before if key not in now]


def _message(
    snapshot: _Snapshot,
    tiles: _Rows,
    leases: _Rows,
    happened: tuple[Event, ...],
    gone: Mapping[str, list[str]] | None,
) -> bytes:
    """Return a server-sent event; one with the full state has no `gone`."""
    data = msgspec.json.encode(
        {
            "about": snapshot.about,
            "tiles": tiles,
            "leases": leases,
            "events": [{**msgspec.structs.asdict(event), "isWarning": event.is_warning} for event in happened],
            "gone": gone,
            "trouble": snapshot.trouble,
        }
    )
    return b"".join((b"data: ", data, b"\n\n"))
