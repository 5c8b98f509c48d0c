"""The cache of compiled selectors: its contents, and concurrent use by several threads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from resourceapi.cel import UNLIMITED, CelCompileError, SelectorCache, device_environment
from tests.cel_scenarios import scenario


@scenario(76)
def test_cache_evicts_least_recently_used_selector() -> None:
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
def test_cache_does_not_keep_compile_errors() -> None:
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
def test_cached_selector_has_no_cost_estimate() -> None:
    assert SelectorCache(device_environment()).get("true").max_cost == UNLIMITED


@scenario(77)
def test_concurrent_threads_get_their_selectors_despite_eviction() -> None:
    """Ten workers each compile a selector of their own, then repeatedly three that exceed the capacity."""
    cache = SelectorCache(device_environment(), capacity=2)
    barrier = Barrier(10)

    def use_cache(worker: int) -> bool:
        barrier.wait(30)
        sources = [f"{worker} == {worker}", *(("true",) * 9 + ("false",) * 9 + ("!true",) * 9) * 40]
        return all(cache.get(source).source == source for source in sources)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(10) as threads:
            assert all(threads.map(use_cache, range(10)))
    finally:
        sys.setswitchinterval(interval)
    assert len(cache) == 2
