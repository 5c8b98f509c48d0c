"""A pod's life: the table of transitions."""

import itertools

import pytest

from kubelet.pods.lifecycle import ACTIVE_STATES, Change, State, next_state


def follow(*changes: Change) -> State:
    state = State.UNKNOWN
    for change in changes:
        state = next_state(state, change)
    return state


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ((), State.UNKNOWN),
        ((Change.DELIVERED,), State.ADMITTING),
        ((Change.DELIVERED, Change.REJECTED), State.TERMINATED),
        ((Change.DELIVERED, Change.ADMITTED), State.SYNCING),
        ((Change.DELIVERED, Change.ADMITTED, Change.ENDED), State.TERMINATING),
        ((Change.DELIVERED, Change.ADMITTED, Change.ENDED, Change.UNPREPARED), State.TERMINATED),
        ((Change.ORPHANED,), State.TERMINATED),
    ],
)
def test_changes_lead_to_the_expected_state(changes: tuple[Change, ...], state: State) -> None:
    assert follow(*changes) is state
    is_over = state is State.TERMINATED
    assert next_state(state, Change.KUBELET_STOPPED) is (State.TERMINATED if is_over else State.UNKNOWN)


def test_transition_table_has_11_entries_and_terminated_is_final() -> None:
    for change in Change:
        if change is not Change.KUBELET_STOPPED:
            with pytest.raises(KeyError):
                next_state(State.TERMINATED, change)
    possible = 0
    for state, change in itertools.product(State, Change):
        try:
            next_state(state, change)
        except KeyError:
            continue
        possible += 1
    assert possible == 11


def test_pod_is_active_between_admission_and_termination() -> None:
    assert {State.UNKNOWN, State.TERMINATED} == set(State) - ACTIVE_STATES
