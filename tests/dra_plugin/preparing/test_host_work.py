"""Work on the host for claims, partly in parallel."""

import asyncio
import threading
import time

import pytest

from dra_plugin.preparing.host_work import HostWork
from hostdevices.errors import HostExhausted
from tests.dra_plugin.preparing.world import World
from tests.threads import no_more_threads


async def test_blocked_devices_do_not_delay_file_writes() -> None:
    """With nine slow resets and one exclusive writer, other claims continue."""
    work, answers = HostWork(), threading.Event()
    waiting = [asyncio.ensure_future(work.run_blocking(answers.wait)) for _ in range(9)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert await work.write(lambda: "written") == "written"
            async with work.exclusive():
                writing = asyncio.ensure_future(work.write(lambda: "later"))
                assert await work.in_thread(lambda: "alone") == "alone"
                assert not writing.done()
            assert await writing == "later"
    finally:
        answers.set()
        await asyncio.gather(*waiting)
        await work.close()


async def test_write_runs_in_a_thread_after_a_slow_write() -> None:
    work, here = HostWork(fast_call=0.001), threading.get_ident()
    try:
        assert await work.write(threading.get_ident) == here
        await work.write(lambda: time.sleep(0.02))
        assert await work.write(threading.get_ident) != here
    finally:
        await work.close()


async def test_call_without_a_free_thread_is_refused_and_never_run() -> None:
    """A driver that is bound after its claim was refused would have no owner."""
    work, done = HostWork(), list[str]()
    with no_more_threads(), pytest.raises(HostExhausted, match="no thread is left: can't start new thread"):
        await work.run_blocking(lambda: done.append("refused"))
    await work.run_blocking(lambda: done.append("later"))
    assert done == ["later"]
    with no_more_threads():
        await work.close()


async def test_repair_fails_without_a_free_thread_and_succeeds_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    waiting = asyncio.ensure_future(world.preparer._work.run_blocking(answers.wait))  # in the thread that there is
    try:
        await asyncio.sleep(0)
        with no_more_threads():
            assert not await world.preparer.repair()
        assert "files of claims: no thread is left: can't start new thread; nodeplug tries again" in caplog.text
    finally:
        answers.set()
        await waiting
    assert await world.preparer.repair()
