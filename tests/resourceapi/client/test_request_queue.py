"""The queue in which requests wait for a connection."""

import asyncio

import pytest

from resourceapi.client.connections import MAX_IDLE_CONNECTIONS
from resourceapi.client.request_queue import MAX_RUNNING, RequestQueue


async def test_request_waits_until_one_of_the_first_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.request_queue.QUEUE_SECONDS", 60.0)
    line = RequestQueue()
    assert [await line.enter() for _ in range(MAX_IDLE_CONNECTIONS)] == [True] * MAX_IDLE_CONNECTIONS
    assert not line.is_free
    waiting = asyncio.ensure_future(line.enter())
    await asyncio.wait([waiting], timeout=0)
    line.leave(True)
    assert await waiting


async def test_waiting_request_exceeds_idle_limit_up_to_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.request_queue.QUEUE_SECONDS", 0.0)
    line = RequestQueue()
    entered = [await line.enter() for _ in range(MAX_RUNNING)]
    assert sum(entered) == MAX_IDLE_CONNECTIONS
    waiting = asyncio.ensure_future(line.enter())
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    line.leave(False)
    assert not await waiting


async def test_cancelled_wait_occupies_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.request_queue.QUEUE_SECONDS", 60.0)
    line = RequestQueue()
    for _ in range(MAX_IDLE_CONNECTIONS):
        await line.enter()
    for _ in range(MAX_RUNNING):
        waiting = asyncio.ensure_future(line.enter())
        await asyncio.wait([waiting], timeout=0)
        waiting.cancel()
        await asyncio.wait([waiting])
    for _ in range(MAX_IDLE_CONNECTIONS):
        line.leave(True)
    assert line.is_free
    assert await line.enter()
