"""A resource's way through the kubelet's hands, as one table: states, events, and what to do next.

    DOWN -> SERVING -> REGISTERING -> REGISTERED -> STREAMING
               ^            |  ^            |           |
               |  no kubelet|  +--- WAITING <-----------+   (refused, no stream in time, stream ended)
               +------------+

Rules:
1. Serve first, then register: the kubelet calls back before it answers (device manager specification, 2.3).
2. Whenever the newest stream ends, for whatever reason, register again: the kubelet never dials a second time.
3. A new kubelet.sock is a new kubelet: register at once, whatever the state.
4. A lost socket file means that the kubelet wiped the folder: serve again, then register.
"""

from enum import Enum, auto

from msgspec import Struct

from checkpoint.ledger import ANSWER_GRACE


class State(Enum):
    """Where a resource stands."""

    DOWN = auto()  # no socket of ours in the folder
    SERVING = auto()  # socket in place, no kubelet to register with
    REGISTERING = auto()  # Register is under way
    REGISTERED = auto()  # the kubelet accepted and has not opened ListAndWatch yet
    STREAMING = auto()  # the kubelet listens to our list
    WAITING = auto()  # back-off before the next Register


class Event(Enum):
    """What can happen."""

    SERVED = auto()
    UNSERVABLE = auto()
    SOCKET_LOST = auto()
    KUBELET_SEEN = auto()
    KUBELET_MISSING = auto()
    ACCEPTED = auto()
    REFUSED = auto()
    STREAM_OPENED = auto()
    STREAM_ENDED = auto()
    OVERDUE = auto()  # accepted, and no stream in time
    DUE = auto()  # back-off is over


class Action(Enum):
    """What to do on the way into the next state."""

    NOTHING = auto()
    SERVE = auto()
    REGISTER = auto()
    EXPECT_STREAM = auto()
    BACK_OFF = auto()


_S, _E, _A = State, Event, Action
_REGISTER = (_S.REGISTERING, _A.REGISTER)
_WAIT = (_S.WAITING, _A.BACK_OFF)
_STREAM = (_S.STREAMING, _A.NOTHING)

TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (_S.DOWN, _E.SERVED): _REGISTER,
    (_S.DOWN, _E.UNSERVABLE): (_S.DOWN, _A.BACK_OFF),
    (_S.DOWN, _E.DUE): (_S.DOWN, _A.SERVE),
    (_S.SERVING, _E.KUBELET_SEEN): _REGISTER,
    (_S.REGISTERING, _E.KUBELET_SEEN): _REGISTER,
    (_S.REGISTERING, _E.KUBELET_MISSING): (_S.SERVING, _A.NOTHING),
    (_S.REGISTERING, _E.ACCEPTED): (_S.REGISTERED, _A.EXPECT_STREAM),
    (_S.REGISTERING, _E.REFUSED): _WAIT,
    (_S.REGISTERING, _E.STREAM_OPENED): _STREAM,  # the stream may overtake the answer
    (_S.REGISTERED, _E.STREAM_OPENED): _STREAM,
    (_S.REGISTERED, _E.OVERDUE): _WAIT,
    (_S.REGISTERED, _E.KUBELET_SEEN): _REGISTER,
    (_S.STREAMING, _E.STREAM_ENDED): _WAIT,
    (_S.STREAMING, _E.KUBELET_SEEN): _REGISTER,
    (_S.WAITING, _E.DUE): _REGISTER,
    (_S.WAITING, _E.KUBELET_SEEN): _REGISTER,
    (_S.WAITING, _E.STREAM_OPENED): _STREAM,
    **{(state, _E.SOCKET_LOST): (_S.DOWN, _A.SERVE) for state in State if state is not _S.DOWN},
}


def step(state: State, event: Event) -> tuple[State, Action]:
    """Return the next state and what to do; an event that says nothing new in `state` changes nothing."""
    return TRANSITIONS.get((state, event), (state, Action.NOTHING))


class Timings(Struct, frozen=True):
    """How long we wait for a kubelet, and for a disk, in seconds."""

    register: float = 15.0  # for Register's answer; the kubelet dials back for up to 10 s within the call
    stream: float = 10.0  # from the answer to ListAndWatch; a kubelet takes a millisecond
    stable: float = 10.0  # a stream that lived that long was a good one: the next try comes without delay
    silence: float = 60.0  # a kubelet that is silent that long is pinged, and given up after as long again
    record: float = ANSWER_GRACE  # from our answer to Allocate until pod-resources names the device
    cdi: float = 10.0  # until CDI specs are written again that could not be
