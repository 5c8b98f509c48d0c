"""Serializes the work for each claim: the kubelet's calls and background work take turns.

All work for a claim goes through here; there is no other queue. Claims do not wait for each other.
"""

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary


class ClaimLock:
    """The locks of some claims, held from `async with` to its end, or to the end of the one they are transferred to."""

    def __init__(self, locks: Sequence[asyncio.Lock]) -> None:
        """Prepare; nothing is locked yet."""
        self._locks = locks
        self._held: list[asyncio.Lock] = []

    async def __aenter__(self) -> Self:
        """Acquire the locks."""
        try:
            for lock in self._locks:
                await lock.acquire()
                self._held.append(lock)
        except BaseException:
            self._release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the locks, unless they were transferred."""
        self._release()

    def transfer(self) -> "ClaimLock":
        """Return the same locks for another task, whose `async with` releases them."""
        other = ClaimLock(())
        other._held, self._held = self._held, []
        return other

    def _release(self) -> None:
        while self._held:
            self._held.pop().release()


class ClaimLocks:
    """One lock per claim uid, which exists while any task uses it."""

    def __init__(self) -> None:
        """Start without locks."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_busy(self, uid: str) -> bool:
        """Return whether a task holds the claim's lock."""
        lock = self._locks.get(uid)
        return lock is not None and lock.locked()

    def acquire(self, uids: Iterable[str]) -> ClaimLock:
        """Return the locks of all these claims, to be awaited with `async with`.

        All callers lock in the same order, so that no two wait for each other.
        """
        return ClaimLock([self._lock(uid) for uid in sorted(uids)])

    def _lock(self, uid: str) -> asyncio.Lock:
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock
