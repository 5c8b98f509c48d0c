"""Work in a thread, when no thread is left."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hostdevices.errors import HostExhausted
from hostdevices.threads import in_thread
from tests.threads import no_more_threads


async def test_call_refused_without_thread_never_runs() -> None:
    """Otherwise a refused reset of a device would still happen when another reset ends."""
    done: list[str] = []
    answers = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        first = asyncio.ensure_future(in_thread(answers.wait, threads))
        await asyncio.sleep(0)
        with no_more_threads(), pytest.raises(HostExhausted, match="can't start new thread"):
            await in_thread(lambda: done.append("refused"), threads)
        answers.set()
        assert await first
        await in_thread(lambda: done.append("begun"), threads)
    assert done == ["begun"]


async def test_error_in_thread_is_raised_in_caller() -> None:
    def fail() -> None:
        raise OSError(5, "no such luck")

    with pytest.raises(OSError, match="no such luck"):
        await in_thread(fail)
