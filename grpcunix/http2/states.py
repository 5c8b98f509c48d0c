"""The life of a stream, as a table (RFC 9113, section 5.1), for both ends.

A stream is OPEN from its first HEADERS on; each end closes its half with END_STREAM; RST_STREAM closes both at once.
What a row does not name must not happen. If the other end does it, the connection ends with the code of `ILLEGAL`:
the RFC would let the connection live in some cases, but then each of them makes us send RST_STREAM for nothing, which
is how "made you reset" floods work.

RESET is a stream that we ended before the other end knew: what it sent meanwhile is on its way and must be taken, its
header blocks because they change the compression, its DATA because they use the connection's window.
"""

from enum import IntEnum
from typing import Final

from grpcunix.http2.frames import ErrorCode, Fault


class State(IntEnum):
    """Where a stream is."""

    IDLE = 0
    OPEN = 1
    HALF_CLOSED_LOCAL = 2  # we have sent all
    HALF_CLOSED_REMOTE = 3  # the other end has sent all
    CLOSED = 4
    RESET = 5


class Event(IntEnum):
    """What happens to a stream."""

    RECEIVE_HEADERS = 0
    RECEIVE_DATA = 1
    RECEIVE_END = 2  # END_STREAM, after the frame that carries it
    RECEIVE_RESET = 3
    RECEIVE_WINDOW_UPDATE = 4
    SEND_HEADERS = 5
    SEND_DATA = 6
    SEND_END = 7
    SEND_RESET = 8


# plain names: looking a member up in its class costs more than the step itself
IDLE, OPEN, HALF_CLOSED_LOCAL, HALF_CLOSED_REMOTE, CLOSED, RESET = State
(
    RECEIVE_HEADERS,
    RECEIVE_DATA,
    RECEIVE_END,
    RECEIVE_RESET,
    RECEIVE_WINDOW_UPDATE,
    SEND_HEADERS,
    SEND_DATA,
    SEND_END,
    SEND_RESET,
) = Event

TABLE: Final[dict[State, dict[Event, State]]] = {
    IDLE: {RECEIVE_HEADERS: OPEN, SEND_HEADERS: OPEN},
    OPEN: {
        RECEIVE_HEADERS: OPEN,
        RECEIVE_DATA: OPEN,
        RECEIVE_END: HALF_CLOSED_REMOTE,
        RECEIVE_RESET: CLOSED,
        RECEIVE_WINDOW_UPDATE: OPEN,
        SEND_HEADERS: OPEN,
        SEND_DATA: OPEN,
        SEND_END: HALF_CLOSED_LOCAL,
        SEND_RESET: RESET,
    },
    HALF_CLOSED_LOCAL: {
        RECEIVE_HEADERS: HALF_CLOSED_LOCAL,
        RECEIVE_DATA: HALF_CLOSED_LOCAL,
        RECEIVE_END: CLOSED,
        RECEIVE_RESET: CLOSED,
        RECEIVE_WINDOW_UPDATE: HALF_CLOSED_LOCAL,
        SEND_RESET: RESET,
    },
    HALF_CLOSED_REMOTE: {
        RECEIVE_RESET: CLOSED,
        RECEIVE_WINDOW_UPDATE: HALF_CLOSED_REMOTE,
        SEND_HEADERS: HALF_CLOSED_REMOTE,
        SEND_DATA: HALF_CLOSED_REMOTE,
        SEND_END: CLOSED,
        SEND_RESET: CLOSED,  # nothing of it can be on its way any more
    },
    CLOSED: {RECEIVE_RESET: CLOSED, RECEIVE_WINDOW_UPDATE: CLOSED},
    RESET: {
        RECEIVE_HEADERS: RESET,
        RECEIVE_DATA: RESET,
        RECEIVE_END: CLOSED,
        RECEIVE_RESET: CLOSED,
        RECEIVE_WINDOW_UPDATE: RESET,
    },
}

ILLEGAL: Final = {
    IDLE: ErrorCode.PROTOCOL_ERROR,
    OPEN: ErrorCode.PROTOCOL_ERROR,
    HALF_CLOSED_LOCAL: ErrorCode.PROTOCOL_ERROR,
    HALF_CLOSED_REMOTE: ErrorCode.STREAM_CLOSED,
    CLOSED: ErrorCode.STREAM_CLOSED,
    RESET: ErrorCode.STREAM_CLOSED,
}


def step(state: State, event: Event) -> State:
    """Return the state after `event`. Raises `Fault` where the table does not allow it."""
    after = TABLE[state].get(event)
    if after is None:
        raise Fault(ILLEGAL[state], f"{event.name} in state {state.name}")
    return after
