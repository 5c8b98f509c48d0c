"""What the other end can make grow, and the limits.

A limit per connection is no bound if a client can open hundreds of them, so all connections of a process also share
limits (`SharedUsage`): each connection always gets a small amount, and more only within the total. A greedy client
leaves the others their small amount.

Frames that cause work and carry no call have a price: `FrameBudget`. RFC 9113, section 10.5, names the kinds.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from grpcunix.http2.frames import ErrorCode, Fault


class Limits(NamedTuple):
    """Limits of one connection, and of all connections of a process together (those that end in `_total`)."""

    message: int = 4 << 20  # bytes of one received message; gRPC's usual limit
    streams: int = 100  # concurrent calls; RFC 9113 recommends no fewer
    streams_guaranteed: int = 8  # calls that a connection can always have, whatever the others use
    streams_total: int = 1_000
    unfinished_guaranteed: int = 8_192  # bytes of incomplete requests
    unfinished_total: int = 5 << 20  # one message of the largest size fits
    header_list: int = 16_384  # bytes, counted as in RFC 9113: names, values and 32 for each field
    header_frames: int = 8  # HEADERS and the CONTINUATION frames after it
    connections_guaranteed: int = 8  # of each server
    connections_total: int = 256


DEFAULT_LIMITS: Final = Limits()


class SharedUsage:
    """What all connections of a process use together."""

    def __init__(self) -> None:
        """Start empty."""
        self.connections = 0
        self.streams = 0
        self.unfinished = 0  # bytes


class FrameBudget:
    """A budget for frames that carry no call: PING, SETTINGS, WINDOW_UPDATE, RST_STREAM, empty DATA and the like.

    A normal peer sends a few of them for each DATA frame and each end of a call that it receives (window updates for
    what it reads, and pings that measure the connection), so each of those adds to the budget. Time adds a little more.
    """

    INITIAL: Final = 200
    MAXIMUM: Final = 10_000
    CREDIT_PER_FRAME: Final = 3
    CREDIT_PER_SECOND: Final = 20

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with `INITIAL`; `clock` returns seconds."""
        self.credit = self.INITIAL
        self._clock = clock
        self._refilled_at = clock()

    def spend(self) -> None:
        """Pay for one frame. Raises `Fault` if nothing is left."""
        if self.credit < 1:
            now = self._clock()
            self.credit = min(int((now - self._refilled_at) * self.CREDIT_PER_SECOND), self.INITIAL)
            if self.credit < 1:
                raise Fault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry no call")
            self._refilled_at = now
        self.credit -= 1

    def earn(self, frames: int) -> None:
        """Add credit for sent frames: DATA, and ends of calls."""
        self.credit = min(self.credit + self.CREDIT_PER_FRAME * frames, self.MAXIMUM)
