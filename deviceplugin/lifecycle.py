"""The registration of a resource with the kubelet, as one table: states, events, and the next action.

    ABSENT -> REGISTERING -> REGISTERED -> STREAMING
       ^         |   ^           |             |
       +---------+   +-- WAITING <-------------+    (refused, no stream in time, stream ended)
     no kubelet

Rules:
1. Each Register uses a new socket, which serves first: the kubelet calls back before it answers (device manager
   specification, 2.3), and 1.37 refuses a path that was used before (changes, 1.3).
2. Whenever the newest stream ends, for whatever reason, register again: the kubelet never connects a second time.
3. While the stream is open, never register: a kubelet that restarts ends it, and no other change in the folder matters.
"""

from enum import Enum, auto

from msgspec import Struct


class State(Enum):
    """The state of a resource."""

    ABSENT = auto()  # no kubelet to register with, or a successor has registered
    REGISTERING = auto()  # Register is under way
    REGISTERED = auto()  # the kubelet accepted and has not opened ListAndWatch yet
    STREAMING = auto()  # the kubelet has opened ListAndWatch
    WAITING = auto()  # back-off before the next Register


class Event(Enum):
    """The events of a registration."""

    KUBELET_SEEN = auto()
    KUBELET_MISSING = auto()
    ACCEPTED = auto()
    REFUSED = auto()  # by the kubelet, or the socket cannot be served
    STREAM_OPENED = auto()
    STREAM_ENDED = auto()
    STREAM_TIMEOUT = auto()  # accepted, and no stream in time
    BACKOFF_EXPIRED = auto()  # back-off is over


class Action(Enum):
    """What to do on the way to the next state."""

    NOTHING = auto()
    REGISTER = auto()
    EXPECT_STREAM = auto()
    BACK_OFF = auto()


_S, _E, _A = State, Event, Action
_REGISTER = (_S.REGISTERING, _A.REGISTER)
_WAIT = (_S.WAITING, _A.BACK_OFF)
_STREAM = (_S.STREAMING, _A.NOTHING)
INITIAL = _REGISTER

TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (_S.ABSENT, _E.KUBELET_SEEN): _REGISTER,
    (_S.REGISTERING, _E.KUBELET_SEEN): _REGISTER,
    (_S.REGISTERING, _E.KUBELET_MISSING): (_S.ABSENT, _A.NOTHING),
    (_S.REGISTERING, _E.ACCEPTED): (_S.REGISTERED, _A.EXPECT_STREAM),
    (_S.REGISTERING, _E.REFUSED): _WAIT,
    (_S.REGISTERED, _E.STREAM_OPENED): _STREAM,
    (_S.REGISTERED, _E.STREAM_TIMEOUT): _WAIT,
    (_S.REGISTERED, _E.KUBELET_SEEN): _REGISTER,
    (_S.STREAMING, _E.STREAM_ENDED): _WAIT,
    (_S.WAITING, _E.BACKOFF_EXPIRED): _REGISTER,
    (_S.WAITING, _E.KUBELET_SEEN): _REGISTER,
    (_S.WAITING, _E.STREAM_OPENED): _STREAM,
}


def step(state: State, event: Event) -> tuple[State, Action] | None:
    """Return the next state and what to do; None for an event without effect in `state`."""
    return TRANSITIONS.get((state, event))


class Timings(Struct, frozen=True):
    """Time limits for a kubelet, in seconds."""

    register: float = 15.0  # for Register's answer; within the call the kubelet dials back for up to 10 s
    stream: float = 10.0  # from the answer to ListAndWatch; a kubelet takes a millisecond
    stable: float = 10.0  # after a stream of at least this duration the next attempt has no delay
    silence: float = 60.0  # a kubelet that is silent this long is pinged, and disconnected after the same time again
    answer: float = 3.0  # for an Allocate under way when its server stops
    recheck: float = 30.0  # between checks of the kubelet's folder
