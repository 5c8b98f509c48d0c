"""Work on the host in a thread, for the loop: it is done while its caller waits, or never.

An executor keeps work for which it could start no thread, and does it when another thread is free. Then a device would
be reset, or get another driver, although the caller got an error and has ended.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from hostdevices.errors import HostExhausted

T = TypeVar("T")


async def in_thread(call: Callable[[], T], threads: Executor | None = None) -> T:
    """Return what `call` returns in one of these `threads`, or of the loop's own; raises what it raises.

    Raises `HostExhausted` if no thread is available.
    """
    done: Future[T] = Future()

    def work() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    try:
        asyncio.get_running_loop().run_in_executor(threads, work)
    except RuntimeError as error:  # the process, its cgroup or the node can have no other thread now
        if done.cancel():  # else a thread that just became free runs it
            raise HostExhausted(f"no thread is left: {error}") from error
    return await asyncio.wrap_future(done)
