"""Schedules the synchronization of pools. Pure: methods that depend on time get it as an argument, in seconds.

After a failure the pool is retried, with growing delays, and all retries together stay below a rate. Slices that others
deleted are restored once no further deletion follows. If deletions recur, the delay grows, so that two conflicting
writers do not overload a server. Source: DRA node specification, 3.3.
"""

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Times in seconds. `rate` is in synchronizations per second after failures; the first `burst` are not delayed.

    The delay that a server asks for is kept, up to `max_retry_after`: maintenance pages ask for hours. No event
    announces that the server takes writes again or that a permission was granted. The reference library waits up to
    1000 s, and during that time claims get devices that are gone.
    """

    first_retry: float = 0.005
    max_retry: float = 60.0
    max_retry_after: float = 30.0
    rate: float = 10.0
    burst: int = 100
    debounce: float = 0.02
    max_debounce: float = 30.0
    forget_after: float = 60.0


class Queue:
    """Names of pools, each at most once, with the time at which it is due."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._due: dict[str, float] = {}
        self._debounced: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._deletions: dict[str, tuple[int, float]] = {}
        self._tokens, self._counted_at = float(limits.burst), 0.0

    def add(self, name: str, due: float) -> None:
        """Schedule a pool for this time, or keep an earlier one."""
        self._due[name] = min(due, self._due.get(name, due))

    def slices_deleted(self, name: str, now: float) -> None:
        """Schedule a pool whose slices others deleted, for when no further deletion has followed for a moment."""
        limits = self._limits
        if name in self._debounced:
            self._debounced[name] = max(self._debounced[name], now + limits.debounce)
            return
        count, last = self._deletions.get(name, (0, now))
        count = 0 if now - last > limits.forget_after else count
        self._debounced[name] = now + min(limits.debounce * 2.0 ** min(count, 64), limits.max_debounce)
        self._deletions[name] = (count + 1, now)

    def failed(self, name: str, now: float, retry_after: float = 0.0) -> None:
        """Schedule a retry; `retry_after` is the delay that the server asked for, in seconds."""
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        limits = self._limits
        delay = min(limits.first_retry * 2.0 ** min(failures, 64), limits.max_retry)
        self.add(name, now + max(delay, min(retry_after, limits.max_retry_after), self._take_token(now)))

    def succeeded(self, name: str) -> None:
        """Reset a pool's failures."""
        self._failures.pop(name, None)

    def pop(self, now: float) -> str | None:
        """Remove and return the pool that has been due longest; None if none is due."""
        name = min(self._due.keys() | self._debounced.keys(), key=lambda each: (self._due_at(each), each), default=None)
        if name is None or self._due_at(name) > now:
            return None
        self._due.pop(name, None)
        self._debounced.pop(name, None)
        return name

    def next_due(self) -> float | None:
        """Return when the next pool is due; None if none is queued."""
        return min(map(self._due_at, self._due.keys() | self._debounced.keys()), default=None)

    def _due_at(self, name: str) -> float:
        return min(self._due.get(name, float("inf")), self._debounced.get(name, float("inf")))

    def _take_token(self, now: float) -> float:
        """Take a token; return how long it takes until one is free, in seconds."""
        rate, burst = self._limits.rate, float(self._limits.burst)
        self._tokens = min(burst, self._tokens + (now - self._counted_at) * rate) - 1.0
        self._counted_at = now
        return max(0.0, -self._tokens / rate)
