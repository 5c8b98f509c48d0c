"""Objects that no API server would accept: an error with a reason, no traceback, no endless search."""

import random
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.structured import AllocationAborted, AllocationError, Allocator
from resourceapi.objects import DecodeError, QuantityError
from tests.cases.allocator import read_problem
from tests.controlplane.structured.random_problems import random_problem

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63 - 1, [], {}, ["x"]),
    *("", "x", "-1", "0", "1e9999", "9" * 40, "é", "a/b/c"),
)
MAX_CHECKS = 300


def _damage(value: Any, rng: random.Random) -> None:
    """Replace, drop or repeat one random nested value."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.9:
            value = value[key]
            continue
        if rng.random() < 0.3:
            del value[key]
        elif isinstance(value, list) and rng.random() < 0.3:
            value.append(value[key])
        else:
            value[key] = rng.choice(ODD)
        return


@given(seed=st.integers(0, 2**32), times=st.integers(0, 6))
def test_damaged_objects_are_allocated_or_refused_with_allocation_error(seed: int, times: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(seed)
    for _ in range(times):
        _damage({key: problem[key] for key in ("claims", "classes", "slices", "node", "allocatedState")}, rng)
    try:
        read, same = read_problem(problem), read_problem(problem)
    except (DecodeError, QuantityError, AttributeError, KeyError, TypeError, ValueError):
        return  # refused by the reader, or the problem's own structure is broken
    checks = count()
    allocator = Allocator(read.features, read.state, read.classes, read.slices)
    try:
        results = allocator.allocate(read.node, read.claims, is_cancelled=lambda: next(checks) > MAX_CHECKS)
    except AllocationAborted:
        assert next(checks) == MAX_CHECKS + 2, "the search stops at the first check after cancellation"
    except AllocationError:
        pass
    else:
        assert results is None or len(results) == len(read.claims)
    assert (read.claims, read.slices, read.node) == (same.claims, same.slices, same.node), "inputs are not changed"
