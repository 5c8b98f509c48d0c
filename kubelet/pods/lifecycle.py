"""A pod's life cycle on its node, as in the kubelet's pod workers. Pure: the states and the transitions between them.

| state | the running kubelet | the pod's containers | its cgroup | pod resources |
|---|---|---|---|---|
| UNKNOWN | does not know the pod, or no kubelet runs | keep running, none is started | stays | not listed |
| ADMITTING | allocates its devices, one pod after the other | those of an earlier kubelet run | stays | listed |
| SYNCING | prepares its claims, starts and restarts containers | start and run | exists | listed |
| TERMINATING | has ended its containers, unprepares its claims | none runs | exists | listed |
| TERMINATED | has finished with it | none runs | gone | not listed |

Source: the kubelet's `pod_workers.go` and `HandlePodAdditions`; observations 42, 43, 50, 57-67 and those of cgroups.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType


class State(Enum):
    """The state of a pod's life cycle."""

    UNKNOWN = auto()
    ADMITTING = auto()
    SYNCING = auto()
    TERMINATING = auto()
    TERMINATED = auto()


class Change(Enum):
    """An event that changes a pod's state."""

    DELIVERED = auto()  # a source has the pod, and its admission begins
    ADMITTED = auto()
    REJECTED = auto()
    ENDED = auto()  # the pod was deleted, or all its containers ended and are not restarted
    UNPREPARED = auto()  # its claims are unprepared, so the kubelet has finished with it
    ORPHANED = auto()  # all sources are ready and none has the pod
    KUBELET_STOPPED = auto()


_TRANSITIONS: Mapping[tuple[State, Change], State] = MappingProxyType(
    {
        (State.UNKNOWN, Change.DELIVERED): State.ADMITTING,
        (State.UNKNOWN, Change.ORPHANED): State.TERMINATED,
        (State.ADMITTING, Change.ADMITTED): State.SYNCING,
        (State.ADMITTING, Change.REJECTED): State.TERMINATED,
        (State.SYNCING, Change.ENDED): State.TERMINATING,
        (State.TERMINATING, Change.UNPREPARED): State.TERMINATED,
        (State.TERMINATED, Change.KUBELET_STOPPED): State.TERMINATED,
        **{
            (state, Change.KUBELET_STOPPED): State.UNKNOWN
            for state in (State.UNKNOWN, State.ADMITTING, State.SYNCING, State.TERMINATING)
        },
    }
)

ACTIVE_STATES = frozenset({State.ADMITTING, State.SYNCING, State.TERMINATING})
"""The states in which a pod counts as active."""


def next_state(state: State, change: Change) -> State:
    """Return the next state. Raises KeyError if `change` is impossible in `state`."""
    return _TRANSITIONS[state, change]
