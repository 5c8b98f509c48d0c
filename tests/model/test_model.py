"""Nobody has what is somebody else's, no lease ends too early, each ends: in every state, and with the real code."""

import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.explorer import Graph
from tests.model.node import CONFIGURATIONS, Action, State, complaint, steps
from tests.model.real import live

IS_LONG = settings.get_current_profile_name() == "long"
SMALL = [State("plugin", has_cgroups=False, crashes=1, restarts=1), State("both", has_cgroups=False, next="renamed")]
CHANGES = list(permutations(CONFIGURATIONS, 2))
LARGE = [
    *(State(x, has_cgroups=False, next=y, crashes=1, restarts=1) for x, y in CHANGES),
    *(State(x, next=y, crashes=1 - z, restarts=z) for (x, y), z in product(CHANGES, (0, 1)) if x == "both"),
]


@pytest.mark.hypothesis  # so that `make long` has it, too
@pytest.mark.parametrize("start", LARGE if IS_LONG else SMALL, ids=lambda x: f"{x.configuration} {x.next}".strip())
def test_every_state_is_a_good_one_and_the_real_code_has_the_same_leases(start: State) -> None:
    graph = Graph(start)
    kind = _whole if IS_LONG or len(graph.next) < 5_000 else _without_unit
    for trace in graph.covering(kind):
        with _folder() as root:
            live(root, start, graph.follow(trace))


@given(st.integers(0, 2**32))
def test_walks_through_all_that_can_happen(seed: int) -> None:
    """A crash, another kubelet and another configuration in one life: more states than the suite has time for."""
    rng = random.Random(seed)
    configuration, other = rng.sample(CONFIGURATIONS, 2)
    start = State(configuration, rng.random() < 0.7, next=other, crashes=1, restarts=1)
    with _folder() as root:
        live(root, start, _walk(rng, start))


def _walk(rng: random.Random, state: State) -> Iterable[tuple[Action, State]]:
    for _ in range(rng.choice((5, 10, 20))):
        action, state = rng.choice(list(steps(state)))
        assert not complaint(state), state
        yield action, state


def _whole(action: Action) -> Action:
    return action


def _without_unit(action: Action) -> Action:
    return (action[0], action[-1]) if action[-1] in ("yes", "no", "death") else action[:1]


@contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="model-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
