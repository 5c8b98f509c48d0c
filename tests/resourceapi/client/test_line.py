"""The queue in which requests wait for a connection."""

import asyncio

import pytest

from resourceapi.client.connections import MOST_IDLE
from resourceapi.client.line import MANY, Line


async def test_request_waits_until_one_of_the_first_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.line.PATIENCE", 60.0)
    line = Line()
    assert [await line.enter() for _ in range(MOST_IDLE)] == [True] * MOST_IDLE
    assert not line.is_free
    waiting = asyncio.ensure_future(line.enter())
    await asyncio.wait([waiting], timeout=0)
    line.leave(True)
    assert await waiting


async def test_waiting_request_exceeds_idle_limit_up_to_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.line.PATIENCE", 0.0)
    line = Line()
    entered = [await line.enter() for _ in range(MANY)]
    assert sum(entered) == MOST_IDLE
    waiting = asyncio.ensure_future(line.enter())
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    line.leave(False)
    assert not await waiting


async def test_cancelled_wait_occupies_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.line.PATIENCE", 60.0)
    line = Line()
    for _ in range(MOST_IDLE):
        await line.enter()
    for _ in range(MANY):
        waiting = asyncio.ensure_future(line.enter())
        await asyncio.wait([waiting], timeout=0)
        waiting.cancel()
        await asyncio.wait([waiting])
    for _ in range(MOST_IDLE):
        line.leave(True)
    assert line.is_free
    assert await line.enter()
