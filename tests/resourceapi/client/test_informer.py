"""Informers: lists, events, failures, and a new list on request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from resourceapi.client import ClientError, Event, Informer, Refused
from resourceapi.objects import DecodeError, v1
from tests.resourceapi.client.peer import Request, Script, Waits, claim, claim_list, client_of, event, serving, status


class Recorder:
    """The events and failures of an informer."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[str]]] = []
        self.failures: list[ClientError | DecodeError] = []
        self._changed = asyncio.Condition()
        self._notices: set[asyncio.Task[None]] = set()

    def on_event(self, found: Event[v1.ResourceClaim]) -> None:
        self.events.append((found.type, [each.metadata.name for each in found.items]))
        self._notice()

    def on_failure(self, error: ClientError | DecodeError) -> None:
        self.failures.append(error)
        self._notice()

    async def until(self, events: int, failures: int = 0) -> None:
        """Wait for the given number of events and failures."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= events and len(self.failures) >= failures)

    def _notice(self) -> None:
        async def notice() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.ensure_future(notice())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)


@contextlib.asynccontextmanager
async def running_informer(script: Script) -> AsyncIterator[tuple[Informer[v1.ResourceClaim], Recorder]]:
    """Run an informer for claims."""
    recorder = Recorder()
    async with serving(script) as peer:
        with client_of(peer, wait=Waits()) as client:
            objects = client.any_version(v1.ResourceClaim)
            informer = Informer(objects, recorder.on_event, recorder.on_failure, field_selector="a=b")
            task = asyncio.create_task(informer.run())
            try:
                yield informer, recorder
            finally:
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                if peer.asked:
                    assert {request.query["fieldSelector"] for request in peer.asked} == {"a=b"}


@pytest.fixture(autouse=True)
def short_retry_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits before retries."""
    monkeypatch.setattr("resourceapi.client.backoff._FIRST_WAIT", 0.001)


async def test_informer_reports_list_then_changes() -> None:
    async def script(request: Request) -> None:
        if not request.is_watch:
            await request.answer(claim_list(claim(name="a")))
            return
        await request.stream(event("ADDED", claim(name="b")), event("DELETED", claim(name="a")))
        await asyncio.Event().wait()

    async with running_informer(script) as (_, recorder):
        await recorder.until(3)
    assert recorder.events == [("LISTED", ["a"]), ("ADDED", ["b"]), ("DELETED", ["a"])]
    assert recorder.failures == []


async def test_refused_list_is_reported_and_repeated() -> None:
    answers = [403, 403, 200]

    async def script(request: Request) -> None:
        if request.is_watch:
            await asyncio.Event().wait()
        code = answers.pop(0)
        await request.answer(claim_list() if code == 200 else status(code), code)

    async with running_informer(script) as (_, recorder):
        await recorder.until(1, failures=2)
    assert all(isinstance(each, Refused) and not each.is_transient for each in recorder.failures)


async def test_unreadable_object_is_reported_and_followed_by_new_list() -> None:
    watches = 0

    async def script(request: Request) -> None:
        nonlocal watches
        if not request.is_watch:
            await request.answer(claim_list())
            return
        watches += 1
        await request.stream(event("ADDED", claim() | {"spec": 5} if watches < 3 else claim()))
        await asyncio.Event().wait()

    async with running_informer(script) as (_, recorder):
        await recorder.until(4, failures=2)
    assert [kind for kind, _ in recorder.events] == ["LISTED", "LISTED", "LISTED", "ADDED"]
    assert all(isinstance(each, DecodeError) for each in recorder.failures)


async def test_transient_failure_is_reported_and_watch_continues() -> None:
    answers = [503, 200]

    async def script(request: Request) -> None:
        if not request.is_watch:
            await request.answer(claim_list())
        elif (code := answers.pop(0)) != 200:
            await request.answer(status(code), code)
        else:
            await request.stream(event("ADDED", claim(name="b")))
            await asyncio.Event().wait()

    async with running_informer(script) as (_, recorder):
        await recorder.until(2, failures=1)
    assert [kind for kind, _ in recorder.events] == ["LISTED", "ADDED"]
    (failure,) = recorder.failures
    assert isinstance(failure, ClientError)
    assert failure.is_transient


async def test_relist_requests_another_list() -> None:
    """A list can be requested during the wait after a failure, twice in a row, and before the first list."""
    lists = 0

    async def script(request: Request) -> None:
        nonlocal lists
        if request.is_watch:
            await asyncio.Event().wait()
        lists += 1
        # on a slow machine the wait can be over already
        claims_page = claim_list(claim(name=f"n{len(recorder.events) + 1}"))
        await (request.answer(status(403), 403) if lists == 3 else request.answer(claims_page))

    async with running_informer(script) as (informer, recorder):
        informer.relist()
        await recorder.until(1)
        informer.relist()
        informer.relist()
        await recorder.until(2)
        informer.relist()
        await recorder.until(2, failures=1)
        informer.relist()
        await recorder.until(3)
    assert [names for _, names in recorder.events] == [["n1"], ["n2"], ["n3"]]
