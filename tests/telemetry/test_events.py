"""The ring of events: bounded, ordered, without state per reader."""

import asyncio
import tracemalloc

from telemetry import EventLog
from telemetry.events import MAX_EVENTS, MAX_TEXT


def texts(log: EventLog, number: int = 0) -> list[str]:
    return [event.message for event in log.since(number)]


def test_oldest_events_are_dropped_and_loss_is_detectable() -> None:
    log = EventLog()
    for number in range(MAX_EVENTS + 3):
        log.record("healthy", str(number))
    assert texts(log) == [str(number) for number in range(3, MAX_EVENTS + 3)]
    assert texts(log, MAX_EVENTS + 2) == [str(MAX_EVENTS + 2)]
    assert texts(log, MAX_EVENTS + 3) == texts(log, MAX_EVENTS + 9) == []
    assert log.counts == {"healthy": MAX_EVENTS + 3}
    assert (log.has_lost_events_after(2), log.has_lost_events_after(3)) == (True, False)


def test_repeated_refusal_is_one_event_with_a_count() -> None:
    log = EventLog()
    log.record("refused", "it is unhealthy", resource="a/b", device="d")
    log.record("healthy", "other")
    log.record("refused", "it is unhealthy", resource="a/b", device="d")
    log.record("refused", "it is unhealthy", resource="a/b", device="e")
    assert [(x.number, x.device, x.count) for x in log.since(0)] == [(2, "", 1), (3, "d", 2), (4, "e", 1)]
    assert log.counts["refused"] == 3
    assert not log.has_lost_events_after(0)


async def test_waiters_wake_at_next_event_and_at_release() -> None:
    log = EventLog()
    waiting = [asyncio.create_task(log.wait(0)) for _ in range(3)]
    await asyncio.sleep(0)
    log.record("healthy", "one")
    await asyncio.wait_for(asyncio.gather(*waiting), 30)
    await asyncio.wait_for(log.wait(0), 30)  # returns at once
    last = asyncio.create_task(log.wait(1))
    await asyncio.sleep(0)
    log.release()
    await asyncio.wait_for(last, 30)


def test_memory_of_event_log_is_bounded() -> None:
    log = EventLog()
    tracemalloc.start()
    try:
        for number in range(5 * MAX_EVENTS):
            log.record("refused", f"{number}" * 10_000, resource="r" * 10_000, device="d" * 10_000, holder="h" * 10_000)
        assert tracemalloc.get_traced_memory()[0] < MAX_EVENTS * (4 * MAX_TEXT + 1000)
    finally:
        tracemalloc.stop()
