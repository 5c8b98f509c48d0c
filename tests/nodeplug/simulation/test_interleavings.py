"""After any sequence of events, no device has two holders, no acknowledged lease is lost, and no file is stale."""

import pytest

from tests.nodeplug.simulation.plan import plan
from tests.nodeplug.simulation.simulation import Failure, simulate

SIMULATIONS, AT_ONCE = 20, 5  # for more: python -m tests.nodeplug.simulation 10000


@pytest.mark.parametrize("first", range(0, SIMULATIONS, AT_ONCE))
def test_random_sequences_violate_no_rule(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        try:
            simulate(seed, plan(seed))
        except Failure as failure:
            history = "\n".join(failure.history)
            pytest.fail(f"{history}\n{failure}\npython -m tests.nodeplug.simulation --seed {seed}", pytrace=False)


def test_same_seed_has_the_same_result() -> None:
    assert simulate(7, plan(7)) == simulate(7, plan(7))
