"""The events of a node, for watchers and waiters."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar
from weakref import WeakSet

from msgspec import Struct

T = TypeVar("T")


class Event(Struct, frozen=True):
    """An event: `kind` is what happened, `about` the resource, driver or pod, `text` the details.

    A `kind` with a capital is the reason of a warning about a pod, which a kubelet also records in the API server.
    """

    kind: str
    about: str
    text: str = ""


class Events:
    """Distributes events, and wakes tasks that wait for a change."""

    def __init__(self) -> None:
        self.changes = 0  # number of events so far
        self._changed = asyncio.Event()
        self._listeners = WeakSet[asyncio.Queue[Event]]()  # each exists as long as its stream

    def notify(self, event: Event) -> None:
        """Distribute an event."""
        for queue in self._listeners:
            queue.put_nowait(event)
        self.changes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, predicate: Callable[[], T], seconds: float) -> T:
        """Wait until `predicate` returns a true value, and return it; checks after each event. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not (value := predicate()):
                await self._changed.wait()
        return value

    def stream(self) -> AsyncIterator[Event]:
        """Return an endless stream of the events from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners.add(queue)
        return _events_in(queue)


async def _events_in(queue: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        yield await queue.get()
