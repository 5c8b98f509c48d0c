"""What happens on a node, for whoever watches or waits."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar
from weakref import WeakSet

from msgspec import Struct

T = TypeVar("T")


class Event(Struct, frozen=True):
    """Something happened: `kind` says what, `about` to which resource, driver or pod, `text` how."""

    kind: str
    about: str
    text: str = ""


class Events:
    """Hands events on, and wakes who waits for a change."""

    def __init__(self) -> None:
        self.changes = 0  # counts up with everything that happens
        self._changed = asyncio.Event()
        self._listeners = WeakSet[asyncio.Queue[Event]]()  # each lives as long as its stream

    def notify(self, event: Event) -> None:
        """Something happened."""
        for queue in self._listeners:
            queue.put_nowait(event)
        self.changes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, predicate: Callable[[], T], seconds: float) -> T:
        """Return what `predicate` says as soon as that is true, looking after each change. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not (value := predicate()):
                await self._changed.wait()
        return value

    def stream(self) -> AsyncIterator[Event]:
        """What happens from now on, without end."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners.add(queue)
        return _taken_from(queue)


async def _taken_from(queue: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        yield await queue.get()
