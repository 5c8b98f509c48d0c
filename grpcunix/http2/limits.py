"""What the other end can make grow, and how far.

A limit of one connection is no bound where anybody may open hundreds, so all connections to a process also share a
`Pot`: each may always hold a little, and more only while the pot lasts. One that takes all leaves the others their
little.

Frames that cost us work and carry no call have a price, too: `Courtesy`. RFC 9113, section 10.5, names the kinds.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from grpcunix.http2.frames import ErrorCode, Fault


class Limits(NamedTuple):
    """Bounds of one connection, and of all to the servers of a process (those that end in `_together`)."""

    message: int = 4 << 20  # bytes of one message that is received; gRPC's usual limit
    streams: int = 100  # calls at once; RFC 9113 recommends no fewer
    streams_always: int = 8  # calls that a connection may have, whatever the others hold
    streams_together: int = 1_000
    unfinished_always: int = 8_192  # bytes of requests whose end has not come
    unfinished_together: int = 5 << 20  # one message of the largest size fits
    header_list: int = 16_384  # bytes, counted as RFC 9113 does: names, values and 32 for each field
    header_frames: int = 8  # HEADERS and the CONTINUATION frames after it
    connections_always: int = 8  # of each server
    connections_together: int = 256


DEFAULT_LIMITS: Final = Limits()


class Pot:
    """What all connections to a process hold together."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.connections = 0
        self.streams = 0
        self.unfinished = 0  # bytes


class Courtesy:
    """Pays for frames that carry no call: PING, SETTINGS, WINDOW_UPDATE, RST_STREAM, empty DATA and the like.

    Honest ends send a few of them for each DATA frame and each end of a call that they get (acknowledgements of what
    they read, and pings that measure the line), so each of those earns some. A few more come with time.
    """

    FIRST: Final = 200
    MOST: Final = 10_000
    PER_FRAME: Final = 3
    PER_SECOND: Final = 20

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with `FIRST`; `clock` returns seconds."""
        self.credit = self.FIRST
        self._clock = clock
        self._since = clock()

    def spend(self) -> None:
        """Pay for one frame. Raises `Fault` where nothing is left."""
        if self.credit < 1:
            now = self._clock()
            self.credit = min(int((now - self._since) * self.PER_SECOND), self.FIRST)
            if self.credit < 1:
                raise Fault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry no call")
            self._since = now
        self.credit -= 1

    def earn(self, frames: int) -> None:
        """Note frames of ours: DATA, and ends of calls."""
        self.credit = min(self.credit + self.PER_FRAME * frames, self.MOST)
