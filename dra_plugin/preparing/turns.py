"""Serializes the work for each claim: the kubelet's calls and background work take turns.

All work for a claim goes through here; there is no other queue. Claims do not wait for each other.
"""

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary


class Turn:
    """The turn of some claims, from `async with` to its end, or to the end of the turn that it is handed on to."""

    def __init__(self, locks: Sequence[asyncio.Lock]) -> None:
        """Prepare; nothing is locked yet."""
        self._locks = locks
        self._held: list[asyncio.Lock] = []

    async def __aenter__(self) -> Self:
        """Wait for the turn."""
        try:
            for lock in self._locks:
                await lock.acquire()
                self._held.append(lock)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the turn, unless it was handed on."""
        self._end()

    def hand_on(self) -> "Turn":
        """Return the same turn for another task, whose `async with` ends it."""
        other = Turn(())
        other._held, self._held = self._held, []
        return other

    def _end(self) -> None:
        while self._held:
            self._held.pop().release()


class ClaimTurns:
    """One lock per claim uid, which exists while any task uses it."""

    def __init__(self) -> None:
        """Start without locks."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_busy(self, uid: str) -> bool:
        """Return whether a task holds the claim's turn."""
        lock = self._locks.get(uid)
        return lock is not None and lock.locked()

    def take(self, uids: Iterable[str]) -> Turn:
        """Return the turn of all these claims, to be awaited with `async with`.

        All callers lock in the same order, so that no two wait for each other.
        """
        return Turn([self._lock(uid) for uid in sorted(uids)])

    def _lock(self, uid: str) -> asyncio.Lock:
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock
