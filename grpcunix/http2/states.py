"""The states of a stream, as a table (RFC 9113, section 5.1), for both ends.

A stream is OPEN from its first HEADERS on; each end closes its half with END_STREAM; RST_STREAM closes both at once.
Events that a row does not have are illegal. If the other end causes one, the connection ends with the code of
`ILLEGAL`. The RFC would allow keeping the connection in some cases, but then each of them would make this end send
RST_STREAM for nothing, which "made you reset" floods exploit.

RESET is a stream that this end has reset before the other end knew: frames already in transit must be processed, header
blocks because they change the compression state, DATA because it uses the connection's window.
"""

from enum import IntEnum
from typing import Final

from grpcunix.http2.frames import ErrorCode, Fault


class State(IntEnum):
    """The state of a stream."""

    IDLE = 0
    OPEN = 1
    HALF_CLOSED_LOCAL = 2  # this end has sent everything
    HALF_CLOSED_REMOTE = 3  # the other end has sent everything
    CLOSED = 4
    RESET = 5


class Event(IntEnum):
    """The events of a stream."""

    RECEIVE_HEADERS = 0
    RECEIVE_DATA = 1
    RECEIVE_END = 2  # END_STREAM, after the frame that carries it
    RECEIVE_RESET = 3
    RECEIVE_WINDOW_UPDATE = 4
    SEND_HEADERS = 5
    SEND_DATA = 6
    SEND_END = 7
    SEND_RESET = 8


# module-level names: looking a member up in its class costs more than the step itself
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
        SEND_RESET: CLOSED,  # no frame can be in transit any more
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
    """Return the state after `event`. Raises `Fault` if the table does not allow it."""
    after = TABLE[state].get(event)
    if after is None:
        raise Fault(ILLEGAL[state], f"{event.name} in state {state.name}")
    return after
