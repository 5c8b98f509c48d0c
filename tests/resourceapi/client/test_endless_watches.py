"""The client with servers whose lists and watches never end, or end at once."""

import asyncio
import contextlib
import itertools
import threading
from typing import Any

import pytest

from resourceapi.client import ClientError, Credentials, Event, InvalidAnswer, Limits
from resourceapi.client.blocking import Client, Watch
from resourceapi.objects import v1
from tests.resourceapi.client.peer import (
    Json,
    Request,
    Script,
    Waits,
    claim,
    claim_list,
    client_of,
    drip,
    event,
    memory,
    serving,
    status,
)

MIB = 1 << 20


async def test_endless_pages_are_refused_at_collection_limit() -> None:
    async def script(request: Request) -> None:
        await request.answer(claim_list(*(claim(name=f"c{i}") for i in range(100)), **{"continue": "again"}))

    async with serving(script) as peer:
        over_limit = pytest.raises(InvalidAnswer, match="more objects than 1048576 bytes can hold")
        with client_of(peer, limits=Limits(collection=MIB)) as client, memory(16 * MIB), over_limit:
            await client.resource(v1.ResourceClaim).list()
    assert len(peer.asked) < 12


async def test_endless_empty_pages_are_refused_at_page_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.resource.MAX_PAGES", 20)
    async with serving(lambda request: request.answer(claim_list(**{"continue": "again"}))) as peer:
        with client_of(peer) as client, pytest.raises(InvalidAnswer, match="more than 20 pages"):
            await client.resource(v1.ResourceClaim).list()
    assert len(peer.asked) == 20


class EnoughFailures(Exception):
    """Raised after enough failures."""


async def failures_of(
    script: Script, count: int, **options: Any
) -> tuple[list[Event[Json]], list[ClientError], list[float]]:
    """Watch until the given number of failed attempts; return the events, the failures and the waits."""
    waits, failures, events = Waits(), list[ClientError](), list[Event[Json]]()

    def failed(error: ClientError) -> None:
        failures.append(error)
        if len(failures) == count:
            raise EnoughFailures

    async with serving(script) as peer:
        with client_of(peer, wait=waits, **options) as client:
            claims = client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True)
            with contextlib.suppress(EnoughFailures):
                async with contextlib.aclosing(claims.watch(on_failure=failed)) as watch:
                    async for each in watch:
                        events.append(each)
    return events, failures, list(waits)


def with_normal_lists(watch_script: Script) -> Script:
    """Answer lists normally, and watches with this script."""

    async def script(request: Request) -> None:
        await (watch_script(request) if request.is_watch else request.answer(claim_list()))

    return script


async def expired(request: Request) -> None:
    await request.answer(status(410), 410)


async def expired_event(request: Request) -> None:
    await request.answer(event("ERROR", status(410)))


async def bookmark_and_end(request: Request) -> None:
    await request.answer(event("BOOKMARK", claim(resourceVersion="7")))


async def event_and_end(request: Request) -> None:
    await request.answer(event("MODIFIED", claim(resourceVersion="7")))


async def empty_answer(request: Request) -> None:
    await request.answer(b"")


async def invalid_events(request: Request) -> None:
    await request.answer(b'[1]\n"x"\n{}\n{"type":5}\n\xff\xfe\n')


@pytest.mark.parametrize(
    "watch_script", [expired, expired_event, bookmark_and_end, event_and_end, empty_answer, invalid_events]
)
async def test_watch_that_ends_at_once_is_retried_with_growing_delay(watch_script: Script) -> None:
    _, failures, waits = await failures_of(with_normal_lists(watch_script), 6)
    assert len(failures) == 6
    expected = [0.5, 1.0, 2.0, 4.0, 8.0]
    if watch_script in (expired, expired_event):  # the first 410 is normal, so its retry is not delayed
        expected = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert all(low <= wait <= low * 1.25 for low, wait in zip(expected, waits, strict=True))


async def test_list_that_always_expires_is_retried_with_growing_delay() -> None:
    _, failures, waits = await failures_of(expired, 4)
    assert [str(each) for each in failures] == ["410: no"] * 4
    assert waits == sorted(waits)
    assert waits[0] >= 1.0


async def test_events_do_not_depend_on_chunk_boundaries() -> None:
    names = ("one", "two", "three")
    body = b"".join(event("MODIFIED", claim(name=name)) for name in names)
    cuts = iter(range(1, len(body)))

    async def watch_script(request: Request) -> None:
        cut = next(cuts)
        await request.stream(body[:cut], *([body[cut : cut + 1], body[cut + 1 :]] if cut + 1 < len(body) else []))
        await request.end()

    events, _, _ = await failures_of(with_normal_lists(watch_script), len(body) - 2)
    found = [x.object["metadata"]["name"] for x in events if x.type == "MODIFIED"]
    assert found == list(names) * (len(body) - 2)


async def test_endless_line_is_refused_at_object_limit() -> None:
    async def watch_script(request: Request) -> None:
        await request.stream(b'{"type": "')
        while True:
            await request.piece(b"x" * 65536)

    with memory(8 * MIB):
        _, failures, _ = await failures_of(with_normal_lists(watch_script), 2)
    assert all(
        isinstance(each, InvalidAnswer) and "a line has more than 1048576 bytes" in str(each) for each in failures
    )


async def test_endless_objects_are_refused_at_collection_limit() -> None:
    async def watch_script(request: Request) -> None:
        await request.stream()
        for number in itertools.count():
            await request.piece(event("ADDED", claim(name=f"c{number}", filler="x" * 2000)))

    with memory(32 * MIB):
        events, failures, _ = await failures_of(with_normal_lists(watch_script), 2, limits=Limits(collection=MIB))
    assert all("more objects than 1048576 bytes can hold" in str(each) for each in failures)
    assert [each.type for each in events].count("LISTED") == 2
    assert len(events) < 2000


async def test_replaced_and_deleted_objects_free_their_memory() -> None:
    """Replaced and deleted objects do not count towards the memory limit."""

    async def watch_script(request: Request) -> None:
        await request.stream()
        for number in range(2000):
            object_ = claim(name=f"c{number % 5}", filler="x" * 2000)
            await request.piece(event("ADDED", object_) + event("DELETED", object_))
        await request.end()

    events, failures, _ = await failures_of(with_normal_lists(watch_script), 1, limits=Limits(collection=64 * 1024))
    assert [each.type for each in events[:4001]] == ["LISTED", *["ADDED", "DELETED"] * 2000]
    assert "ended at once" in str(failures[0])


async def test_event_rate_is_limited_after_burst() -> None:
    """After a burst, events are read at a limited rate, so that the server has to wait."""
    sent = 0

    async def watch_script(request: Request) -> None:
        nonlocal sent
        line = event("MODIFIED", claim()) * 100
        await request.stream()
        while True:
            await request.piece(line)
            sent += 100

    async with serving(with_normal_lists(watch_script)) as peer:
        with client_of(peer) as client:
            received = 0
            async with contextlib.aclosing(client.raw("v1", "claims", namespaced=True).watch()) as watch:
                loop = asyncio.get_running_loop()
                began = loop.time()
                async for _ in watch:
                    received += 1
                    if received == 6001:  # one of these is the list
                        break
                assert loop.time() - began >= 0.9


async def test_watch_past_its_timeout_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a server that sends single bytes."""
    for name, value in (("_MIN_SECONDS", 0), ("_MAX_SECONDS", 0), ("_GRACE", 0.1)):
        monkeypatch.setattr(f"resourceapi.client.watch.{name}", value)
    _, failures, _ = await failures_of(with_normal_lists(drip), 2)
    assert all("goes on after the time that was asked for" in str(each) for each in failures)


async def test_watch_closed_during_event_leaves_no_connection() -> None:
    """The connection ends at once, without garbage collection. Of many watches, some are closed at this moment."""

    async def watch_script(request: Request) -> None:
        await request.stream()
        while True:
            await request.piece(event("MODIFIED", claim()))

    def consume(watch: Watch[Json]) -> None:
        for _ in watch:
            begun.release()

    begun = threading.Semaphore(0)
    async with serving(with_normal_lists(watch_script)) as peer, asyncio.timeout(20):
        client = Client(lambda: Credentials(server=peer.url))
        watches = [client.raw("v1", "claims", namespaced=True).watch() for _ in range(20)]
        try:
            for watch in watches:
                consuming = asyncio.create_task(asyncio.to_thread(consume, watch))
                await asyncio.to_thread(lambda: [begun.acquire() for _ in range(5)])
                watch.close()
                await consuming
            await peer.until_closed()
        finally:
            client.close()
