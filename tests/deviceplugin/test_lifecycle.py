"""The table of states: what happens next, and that nothing dead-ends."""

import pytest

from deviceplugin.lifecycle import TRANSITIONS, Action, Event, State, step


def walk(*events: Event) -> list[tuple[State, Action]]:
    state, seen = State.DOWN, []
    for event in events:
        state, action = step(state, event)
        seen.append((state, action))
    return seen


def test_serve_first_then_register_then_stream() -> None:
    assert walk(Event.SERVED, Event.ACCEPTED, Event.STREAM_OPENED) == [
        (State.REGISTERING, Action.REGISTER),
        (State.REGISTERED, Action.EXPECT_STREAM),
        (State.STREAMING, Action.NOTHING),
    ]


def test_without_a_kubelet_nothing_is_tried_until_one_is_seen() -> None:
    assert walk(Event.SERVED, Event.KUBELET_MISSING, Event.DUE, Event.KUBELET_SEEN)[1:] == [
        (State.SERVING, Action.NOTHING),
        (State.SERVING, Action.NOTHING),
        (State.REGISTERING, Action.REGISTER),
    ]


def test_a_stream_that_ends_is_followed_by_another_registration() -> None:
    *_, waiting, again = walk(Event.SERVED, Event.ACCEPTED, Event.STREAM_OPENED, Event.STREAM_ENDED, Event.DUE)
    assert waiting == (State.WAITING, Action.BACK_OFF)
    assert again == (State.REGISTERING, Action.REGISTER)


def test_a_kubelet_that_never_opens_the_stream_is_asked_again() -> None:
    assert walk(Event.SERVED, Event.ACCEPTED, Event.OVERDUE)[-1] == (State.WAITING, Action.BACK_OFF)


@pytest.mark.parametrize("state", [s for s in State if s is not State.DOWN])
def test_a_lost_socket_is_served_again_from_every_state(state: State) -> None:
    assert step(state, Event.SOCKET_LOST) == (State.DOWN, Action.SERVE)


@pytest.mark.parametrize("state", [s for s in State if s is not State.DOWN])
def test_a_new_kubelet_is_registered_with_at_once_from_every_state(state: State) -> None:
    assert step(state, Event.KUBELET_SEEN) == (State.REGISTERING, Action.REGISTER)


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
