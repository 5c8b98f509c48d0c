"""After any sequence of events, no device has two holders, no acknowledged lease is lost, and no file is stale."""

import pytest

from tests.nodeplug.two_fronts.life import Failure, live
from tests.nodeplug.two_fronts.plan import plan

LIVES, AT_ONCE = 20, 5  # for more: python -m tests.nodeplug.two_fronts 10000


@pytest.mark.parametrize("first", range(0, LIVES, AT_ONCE))
def test_random_sequences_violate_no_rule(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        try:
            live(seed, plan(seed))
        except Failure as failure:
            diary = "\n".join(failure.diary)
            pytest.fail(f"{diary}\n{failure}\npython -m tests.nodeplug.two_fronts --seed {seed}", pytrace=False)


def test_same_seed_has_the_same_result() -> None:
    assert live(7, plan(7)) == live(7, plan(7))
