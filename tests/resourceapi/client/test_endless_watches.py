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
    client_of,
    drip,
    event,
    listed,
    memory,
    serving,
    status,
)

MIB = 1 << 20


async def test_pages_without_an_end() -> None:
    async def script(request: Request) -> None:
        await request.answer(listed(*(claim(name=f"c{i}") for i in range(100)), **{"continue": "again"}))

    async with serving(script) as peer:
        too_much = pytest.raises(InvalidAnswer, match="more objects than 1048576 bytes can hold")
        with client_of(peer, limits=Limits(collection=MIB)) as client, memory(16 * MIB), too_much:
            await client.resource(v1.ResourceClaim).list()
    assert len(peer.asked) < 12


async def test_empty_pages_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.resource.MOST_PAGES", 20)
    async with serving(lambda request: request.answer(listed(**{"continue": "again"}))) as peer:
        with client_of(peer) as client, pytest.raises(InvalidAnswer, match="more than 20 pages"):
            await client.resource(v1.ResourceClaim).list()
    assert len(peer.asked) == 20


class Stop(Exception):
    """Raised after enough failures."""


async def failures_of(
    script: Script, count: int, **options: Any
) -> tuple[list[Event[Json]], list[ClientError], list[float]]:
    """Watch until the given number of failed attempts; return the events, the failures and the waits."""
    waits, failures, events = Waits(), list[ClientError](), list[Event[Json]]()

    def failed(error: ClientError) -> None:
        failures.append(error)
        if len(failures) == count:
            raise Stop

    async with serving(script) as peer:
        with client_of(peer, wait=waits, **options) as client:
            claims = client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True)
            with contextlib.suppress(Stop):
                async with contextlib.aclosing(claims.watch(on_failure=failed)) as watch:
                    async for each in watch:
                        events.append(each)
    return events, failures, list(waits)


def watching(watched: Script) -> Script:
    """Answer lists normally, and watches with this script."""

    async def script(request: Request) -> None:
        await (watched(request) if request.is_watch else request.answer(listed()))

    return script


async def gone(request: Request) -> None:
    await request.answer(status(410), 410)


async def gone_event(request: Request) -> None:
    await request.answer(event("ERROR", status(410)))


async def bookmark_and_end(request: Request) -> None:
    await request.answer(event("BOOKMARK", claim(resourceVersion="7")))


async def event_and_end(request: Request) -> None:
    await request.answer(event("MODIFIED", claim(resourceVersion="7")))


async def nothing(request: Request) -> None:
    await request.answer(b"")


async def garbage(request: Request) -> None:
    await request.answer(b'[1]\n"x"\n{}\n{"type":5}\n\xff\xfe\n')


@pytest.mark.parametrize("watched", [gone, gone_event, bookmark_and_end, event_and_end, nothing, garbage])
async def test_a_watch_that_ends_at_once_waits_longer_each_time_and_says_so(watched: Script) -> None:
    _, failures, waits = await failures_of(watching(watched), 6)
    assert len(failures) == 6
    expected = [0.5, 1.0, 2.0, 4.0, 8.0]
    if watched in (gone, gone_event):  # the first 410 is normal, so its retry is not delayed
        expected = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert all(low <= wait <= low * 1.25 for low, wait in zip(expected, waits, strict=True))


async def test_a_list_that_is_always_expired_is_not_asked_for_all_the_time() -> None:
    _, failures, waits = await failures_of(gone, 4)
    assert [str(each) for each in failures] == ["410: no"] * 4
    assert waits == sorted(waits)
    assert waits[0] >= 1.0


async def test_events_are_the_same_wherever_what_comes_is_cut() -> None:
    names = ("one", "two", "three")
    body = b"".join(event("MODIFIED", claim(name=name)) for name in names)
    cuts = iter(range(1, len(body)))

    async def watched(request: Request) -> None:
        cut = next(cuts)
        await request.stream(body[:cut], *([body[cut : cut + 1], body[cut + 1 :]] if cut + 1 < len(body) else []))
        await request.end()

    events, _, _ = await failures_of(watching(watched), len(body) - 2)
    found = [x.object["metadata"]["name"] for x in events if x.type == "MODIFIED"]
    assert found == list(names) * (len(body) - 2)


async def test_a_line_without_an_end() -> None:
    async def watched(request: Request) -> None:
        await request.stream(b'{"type": "')
        while True:
            await request.piece(b"x" * 65536)

    with memory(8 * MIB):
        _, failures, _ = await failures_of(watching(watched), 2)
    assert all(
        isinstance(each, InvalidAnswer) and "a line has more than 1048576 bytes" in str(each) for each in failures
    )


async def test_objects_without_an_end() -> None:
    async def watched(request: Request) -> None:
        await request.stream()
        for number in itertools.count(100):
            await request.piece(b"".join(event("ADDED", claim(name=f"c{number}-{i}")) for i in range(100)))

    with memory(32 * MIB):
        events, failures, _ = await failures_of(watching(watched), 2, limits=Limits(collection=MIB))
    assert all("more objects than 1048576 bytes can hold" in str(each) for each in failures)
    assert [each.type for each in events].count("LISTED") == 2
    assert len(events) < 2000


async def test_events_of_the_same_objects_go_on_for_ever() -> None:
    """Replaced and deleted objects do not count towards the memory limit."""

    async def watched(request: Request) -> None:
        await request.stream()
        for number in range(2000):
            one = claim(name=f"c{number % 5}", filler="x" * 2000)
            await request.piece(event("ADDED", one) + event("DELETED", one))
        await request.end()

    events, failures, _ = await failures_of(watching(watched), 1, limits=Limits(collection=64 * 1024))
    assert [each.type for each in events[:4001]] == ["LISTED", *["ADDED", "DELETED"] * 2000]
    assert "ended at once" in str(failures[0])


async def test_a_flood_of_events_leaves_time_for_others() -> None:
    """After a burst, events are read at a limited rate, so that the server has to wait."""
    sent = 0

    async def watched(request: Request) -> None:
        nonlocal sent
        line = event("MODIFIED", claim()) * 100
        await request.stream()
        while True:
            await request.piece(line)
            sent += 100

    async with serving(watching(watched)) as peer:
        with client_of(peer) as client:
            taken = 0
            async with contextlib.aclosing(client.raw("v1", "claims", namespaced=True).watch()) as watch:
                loop = asyncio.get_running_loop()
                began = loop.time()
                async for _ in watch:
                    taken += 1
                    if taken == 6001:  # one of these is the list
                        break
                assert loop.time() - began >= 0.9


async def test_a_watch_that_goes_on_too_long_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a server that sends single bytes."""
    for name, value in (("_SHORTEST", 0), ("_LONGEST", 0), ("_GRACE", 0.1)):
        monkeypatch.setattr(f"resourceapi.client.watch.{name}", value)
    _, failures, _ = await failures_of(watching(drip), 2)
    assert all("goes on after the time that was asked for" in str(each) for each in failures)


async def test_a_watch_that_is_closed_as_an_event_arrives_leaves_no_connection() -> None:
    """The connection ends at once, without garbage collection. Of many watches, some are closed at this moment."""

    async def watched(request: Request) -> None:
        await request.stream()
        while True:
            await request.piece(event("MODIFIED", claim()))

    def consume(watch: Watch[Json]) -> None:
        for _ in watch:
            begun.release()

    begun = threading.Semaphore(0)
    async with serving(watching(watched)) as peer, asyncio.timeout(20):
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
