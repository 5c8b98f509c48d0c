"""Whose turn it is with a claim: the kubelet's calls, and what we do in the background, one after the other.

Everything that works for a claim goes through here; there is no other queue. Claims do not wait for one another.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary


class ClaimTurns:
    """One lock per claim uid, for as long as somebody wants it."""

    def __init__(self) -> None:
        """Nobody works for any claim."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_busy(self, uid: str) -> bool:
        """Tell whether somebody works for the claim now, or waits to."""
        lock = self._locks.get(uid)
        return lock is not None and lock.locked()

    @asynccontextmanager
    async def take(self, uids: Iterable[str]) -> AsyncIterator[AsyncExitStack]:
        """Have the turn with all of these claims; `pop_all` of what is yielded hands it on.

        All callers go by one order, so that no two wait for each other.
        """
        async with AsyncExitStack() as turn:
            for uid in sorted(uids):
                lock = self._locks.get(uid)
                if lock is None:
                    lock = self._locks[uid] = asyncio.Lock()
                await turn.enter_async_context(lock)
            yield turn
