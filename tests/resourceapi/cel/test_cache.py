"""The cache of compiled selectors: its contents, and concurrent use by several threads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from resourceapi.cel import UNLIMITED, CelCompileError, SelectorCache, device_environment
from tests.cel_scenarios import scenario


@scenario(76)
def test_it_keeps_what_was_used_last() -> None:
    cache = SelectorCache(device_environment(), capacity=2)
    first, second = cache.get("true"), cache.get("false")
    assert cache.get("false") is second
    assert cache.get("true") is first
    third = cache.get("false && true")
    assert cache.get("false && true") is third
    assert cache.get("true") is first
    assert "false" not in cache
    assert cache.get("false") is not second
    assert len(cache) == 2


@scenario(76)
def test_it_keeps_no_failure() -> None:
    """CEL parses the text as the difference of three names."""
    cache = SelectorCache(device_environment(), capacity=2)
    kept = cache.get("true"), cache.get("false")
    errors = []
    for _ in range(2):
        with pytest.raises(CelCompileError) as raised:
            cache.get("no-such-variable")
        errors.append(raised.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]).count("undeclared reference to") == 3
    assert (cache.get("true"), cache.get("false")) == kept


@scenario(76)
def test_it_estimates_nothing() -> None:
    assert SelectorCache(device_environment()).get("true").max_cost == UNLIMITED


@scenario(77)
def test_threads_that_put_out_each_others_selectors() -> None:
    """Ten workers each compile a selector of their own, then repeatedly three that exceed the capacity."""
    cache = SelectorCache(device_environment(), capacity=2)
    together = Barrier(10)

    def ask(worker: int) -> bool:
        together.wait(30)
        sources = [f"{worker} == {worker}", *(("true",) * 9 + ("false",) * 9 + ("!true",) * 9) * 40]
        return all(cache.get(source).source == source for source in sources)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(10) as threads:
            assert all(threads.map(ask, range(10)))
    finally:
        sys.setswitchinterval(interval)
    assert len(cache) == 2
