"""What is done to the host for claims, several at a time."""

import asyncio
import threading

import pytest

from dra_plugin.preparing.host_work import HostWork
from hostdevices.errors import HostExhausted
from tests.threads import no_more_threads


async def test_a_device_that_does_not_answer_holds_up_no_file() -> None:
    """Eight resets at once that take a minute each, and somebody who wants to write alone: other claims go on."""
    work, answers = HostWork(), threading.Event()
    waiting = [asyncio.ensure_future(work.wait(answers.wait)) for _ in range(9)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert await work.write(lambda: "written") == "written"
            async with work.alone():
                writing = asyncio.ensure_future(work.write(lambda: "later"))
                assert await work.in_thread(lambda: "alone") == "alone"
                assert not writing.done()
            assert await writing == "later"
    finally:
        answers.set()
        await asyncio.gather(*waiting)
        await work.close()


async def test_without_a_thread_left_it_is_said() -> None:
    work = HostWork()
    with no_more_threads(), pytest.raises(HostExhausted, match="can't start new thread"):
        await work.wait(lambda: "done")
    assert await work.wait(lambda: "done") == "done"
    await work.close()
