"""The server as a whole: a failed start releases its resources."""

import asyncio

from controlplane.apiserver import Server


async def test_cancelled_start_leaves_no_tasks() -> None:
    server, before = Server(), asyncio.all_tasks()
    starting = asyncio.create_task(server.__aenter__())
    while len(asyncio.all_tasks() - before) < 3:  # noqa: ASYNC110 - nothing tells; that, HTTP, and the controllers
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert asyncio.all_tasks() == before
