"""The table of states: which step follows, and that no state is a dead end."""

import pytest

from deviceplugin.lifecycle import INITIAL, TRANSITIONS, Action, Event, State, step


def walk(*events: Event) -> list[tuple[State, Action] | None]:
    state, seen = INITIAL[0], []
    for event in events:
        found = step(state, event)
        seen.append(found)
        state = found[0] if found else state
    return seen


def test_registration_is_followed_by_waiting_for_the_stream() -> None:
    assert INITIAL == (State.REGISTERING, Action.REGISTER)
    assert walk(Event.ACCEPTED, Event.STREAM_OPENED) == [
        (State.REGISTERED, Action.EXPECT_STREAM),
        (State.STREAMING, Action.NOTHING),
    ]


def test_missing_kubelet_stops_attempts_until_one_is_seen() -> None:
    assert walk(Event.KUBELET_MISSING, Event.BACKOFF_EXPIRED, Event.KUBELET_SEEN) == [
        (State.ABSENT, Action.NOTHING),
        None,
        (State.REGISTERING, Action.REGISTER),
    ]


def test_ended_stream_is_followed_by_another_registration() -> None:
    *_, waiting, again = walk(Event.ACCEPTED, Event.STREAM_OPENED, Event.STREAM_ENDED, Event.BACKOFF_EXPIRED)
    assert waiting == (State.WAITING, Action.BACK_OFF)
    assert again == (State.REGISTERING, Action.REGISTER)


def test_stream_timeout_is_followed_by_another_registration() -> None:
    assert walk(Event.ACCEPTED, Event.STREAM_TIMEOUT)[-1] == (State.WAITING, Action.BACK_OFF)


def test_refusal_is_followed_by_another_attempt() -> None:
    assert walk(Event.REFUSED, Event.BACKOFF_EXPIRED) == [
        (State.WAITING, Action.BACK_OFF),
        (State.REGISTERING, Action.REGISTER),
    ]


def test_late_stream_stops_another_registration() -> None:
    assert walk(Event.ACCEPTED, Event.STREAM_TIMEOUT, Event.STREAM_OPENED, Event.BACKOFF_EXPIRED)[-2:] == [
        (State.STREAMING, Action.NOTHING),
        None,
    ]


@pytest.mark.parametrize("state", [s for s in State if s is not State.STREAMING])
def test_new_kubelet_is_registered_with_at_once(state: State) -> None:
    assert step(state, Event.KUBELET_SEEN) == (State.REGISTERING, Action.REGISTER)


@pytest.mark.parametrize("event", [e for e in Event if e is not Event.STREAM_ENDED])
def test_other_events_are_ignored_while_the_stream_is_open(event: Event) -> None:
    assert step(State.STREAMING, event) is None


@pytest.mark.parametrize("state", State)
def test_every_state_can_reach_the_stream(state: State) -> None:
    reached, frontier = {state}, [state]
    while frontier:
        current = frontier.pop()
        for (start, _), (end, _) in TRANSITIONS.items():
            if start is current and end not in reached:
                reached.add(end)
                frontier.append(end)
    assert State.STREAMING in reached
