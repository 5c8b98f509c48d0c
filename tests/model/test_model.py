"""No device has two holders, no lease ends too early, and each one ends: in every state, and with the real code."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.explorer import Graph, Step
from tests.model.node import CONFIGURATIONS, Action, State, steps, violation
from tests.model.real import compare, folder, live

SMALL = [
    State("plugin", has_cgroups=False, crashes=1),
    State("plugin", has_cgroups=False, restarts=1),
    State("claims", crashes=1),
    State("claims", restarts=1),
]


@pytest.mark.parametrize("start", SMALL, ids=lambda x: f"{x.configuration} {'restart' if x.restarts else 'crash'}")
def test_every_state_is_valid_and_the_real_code_takes_every_step(start: State) -> None:
    graph = Graph(start)
    covered = set[Step]()
    for trace in graph.covering(covered):
        with folder() as root:
            live(root, start, trace)
    assert len(covered) == graph.steps


def test_difference_from_the_model_is_detected() -> None:
    """A model that differs from the daemon makes the comparison fail."""
    start = State("plugin", has_cgroups=False)
    ((action, after),) = (x for x in steps(start) if x[0][0] == "allocate")
    with folder() as root, pytest.raises(AssertionError, match="allocate"):
        compare(root, start, [(action, after._replace(leases=frozenset()))])


@given(st.integers(0, 2**32))
def test_random_walks_match_the_model(seed: int) -> None:
    """With a crash, a restart of the kubelet and a change of the configuration: too many states to visit all here."""
    rng = random.Random(seed)
    configuration, other = rng.sample(CONFIGURATIONS, 2)
    start = State(configuration, rng.random() < 0.7, next=(other,), crashes=1, restarts=1)
    with folder() as root:
        compare(root, start, _walk(rng, start))


def _walk(rng: random.Random, state: State) -> Iterable[tuple[Action, State]]:
    for _ in range(rng.choice((5, 10, 20))):
        action, state = rng.choice(list(steps(state)))
        assert not violation(state), state
        yield action, state
