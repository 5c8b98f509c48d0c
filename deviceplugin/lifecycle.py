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
    """Where a resource stands."""

    ABSENT = auto()  # no kubelet to register with, or a successor of ours has done so
    REGISTERING = auto()  # Register is under way
    REGISTERED = auto()  # the kubelet accepted and has not opened ListAndWatch yet
    STREAMING = auto()  # the kubelet listens to our list
    WAITING = auto()  # back-off before the next Register


class Event(Enum):
    """What can happen."""

    KUBELET_SEEN = auto()
    KUBELET_MISSING = auto()
    ACCEPTED = auto()
    REFUSED = auto()  # by the kubelet, or our socket cannot be served
    STREAM_OPENED = auto()
    STREAM_ENDED = auto()
    OVERDUE = auto()  # accepted, and no stream in time
    DUE = auto()  # back-off is over


class Action(Enum):
    """What to do on the way into the next state."""

    NOTHING = auto()
    REGISTER = auto()
    EXPECT_STREAM = auto()
    BACK_OFF = auto()


_S, _E, _A = State, Event, Action
_REGISTER = (_S.REGISTERING, _A.REGISTER)
_WAIT = (_S.WAITING, _A.BACK_OFF)
_STREAM = (_S.STREAMING, _A.NOTHING)
BEGIN = _REGISTER

TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (_S.ABSENT, _E.KUBELET_SEEN): _REGISTER,
    (_S.REGISTERING, _E.KUBELET_SEEN): _REGISTER,
    (_S.REGISTERING, _E.KUBELET_MISSING): (_S.ABSENT, _A.NOTHING),
    (_S.REGISTERING, _E.ACCEPTED): (_S.REGISTERED, _A.EXPECT_STREAM),
    (_S.REGISTERING, _E.REFUSED): _WAIT,
    (_S.REGISTERED, _E.STREAM_OPENED): _STREAM,
    (_S.REGISTERED, _E.OVERDUE): _WAIT,
    (_S.REGISTERED, _E.KUBELET_SEEN): _REGISTER,
    (_S.STREAMING, _E.STREAM_ENDED): _WAIT,
    (_S.WAITING, _E.DUE): _REGISTER,
    (_S.WAITING, _E.KUBELET_SEEN): _REGISTER,
    (_S.WAITING, _E.STREAM_OPENED): _STREAM,
}


def step(state: State, event: Event) -> tuple[State, Action] | None:
    """Return the next state and what to do; None for an event that says nothing new in `state`."""
    return TRANSITIONS.get((state, event))


class Timings(Struct, frozen=True):
    """How long we wait for a kubelet, in seconds."""

    register: float = 15.0  # for Register's answer; the kubelet dials back for up to 10 s within the call
    stream: float = 10.0  # from the answer to ListAndWatch; a kubelet takes a millisecond
    stable: float = 10.0  # a stream that lived that long was a good one: the next try comes without delay
    silence: float = 60.0  # a kubelet that is silent that long is pinged, and given up after as long again
    answer: float = 3.0  # for an Allocate under way when its server is to stop
    recheck: float = 30.0  # between looks at the kubelet's folder
