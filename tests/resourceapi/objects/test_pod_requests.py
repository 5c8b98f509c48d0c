"""What containers need together, against a run of them one after the other."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from resourceapi.objects.pod_requests import peak

AMOUNTS = st.dictionaries(st.sampled_from("xy"), st.integers(0, 3))


@given(st.lists(st.tuples(st.booleans(), AMOUNTS), max_size=5), st.lists(AMOUNTS, max_size=3))
def test_the_most_that_is_held_at_one_time(
    init: list[tuple[bool, dict[str, int]]], containers: list[dict[str, int]]
) -> None:
    held: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for is_sidecar, amounts in init:
        held.update(amounts)
        most |= held
        if not is_sidecar:
            held.subtract(amounts)
    for amounts in containers:
        held.update(amounts)
    assert peak(init, containers) == +(most | held)
