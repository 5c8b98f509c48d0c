"""A pod's life on its node, as the kubelet's pod workers lead it. Pure: the states, and what leads from one to another.

| state | the kubelet that runs | its containers | its cgroup | pod resources |
|---|---|---|---|---|
| UNKNOWN | has not heard of it, or none runs | run on, none is started | stays | not listed |
| ADMITTING | chooses its devices, one pod after the other | those of before a restart run on | stays | listed |
| SYNCING | prepares its claims, starts and restarts containers | start and run | there | listed |
| TERMINATING | ended its containers, unprepares its claims | none runs | there | listed |
| TERMINATED | is done with it | none runs | gone | not listed |

Source: the kubelet's `pod_workers.go` and `HandlePodAdditions`; observations 42, 43, 50, 57-67 and those of cgroups.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType


class State(Enum):
    """Where a pod is in its life."""

    UNKNOWN = auto()
    ADMITTING = auto()
    SYNCING = auto()
    TERMINATING = auto()
    TERMINATED = auto()


class Change(Enum):
    """What happens to a pod."""

    DELIVERED = auto()  # a source names it, and it is its turn
    ADMITTED = auto()
    REJECTED = auto()
    ENDED = auto()  # it was deleted, or all its containers ended for good
    UNPREPARED = auto()  # nothing of it needs the kubelet any more
    ORPHANED = auto()  # all sources are ready and none names it
    KUBELET_STOPPED = auto()


_NEXT: Mapping[tuple[State, Change], State] = MappingProxyType(
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

LISTED = frozenset({State.ADMITTING, State.SYNCING, State.TERMINATING})
"""A kubelet counts a pod among its active ones in these states."""


def after(state: State, change: Change) -> State:
    """The state that follows. Raises KeyError where a pod in `state` cannot meet `change`."""
    return _NEXT[state, change]
