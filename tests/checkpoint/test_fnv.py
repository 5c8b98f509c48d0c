"""The cached hash equals the computed hash."""

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.fnv import OFFSET, Run, fnv1a


def test_fnv1a_has_the_published_values() -> None:
    assert fnv1a(b"") == 0x811C9DC5
    assert fnv1a(b"a") == 0xE40C292C
    assert fnv1a(b"foobar") == 0xBF9CF968


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_consecutive_runs_equal_the_hash_of_the_whole(pieces: list[bytes]) -> None:
    state = OFFSET
    for piece in pieces:
        state = Run(piece).continue_from(state)
    assert state == fnv1a(b"".join(pieces))


@given(st.binary(max_size=60), st.lists(st.integers(0, 2**32 - 1), min_size=30, max_size=60))
def test_run_equals_the_hash_from_any_state_before_and_after_completion(data: bytes, states: list[int]) -> None:
    run = Run(data)
    assert [run.continue_from(state) for state in states] == [fnv1a(data, state) for state in states]
    run.complete()
    assert run.is_complete
    assert [run.continue_from(state) for state in states] == [fnv1a(data, state) for state in states]
