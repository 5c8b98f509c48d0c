"""Follows all objects of a kind while a program runs: lists them, watches them, and lists again after a failure."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Generic, Protocol, TypeVar

from resourceapi.client.backoff import MAX_WAIT, delay
from resourceapi.client.errors import ClientError
from resourceapi.client.watch import Event, OnFailure
from resourceapi.objects import DecodeError

T = TypeVar("T")


class Watched(Protocol[T]):
    """Objects that can be watched: an AsyncResource or AsyncAnyVersion."""

    def watch(
        self, namespace: str = "", *, field_selector: str = "", on_failure: OnFailure | None = None
    ) -> AsyncGenerator[Event[T], None]:
        """Yield all objects, then their changes."""
        ...


class Informer(Generic[T]):
    """Runs a watch and calls back on the event loop, until `run` is cancelled.

    `on_event` receives the events. `on_failure` receives each error. After a ClientError that `is_transient` the watch
    resumes; after any other error the informer lists everything again.
    """

    def __init__(
        self,
        objects: Watched[T],
        on_event: Callable[[Event[T]], None],
        on_failure: Callable[[ClientError | DecodeError], None],
        *,
        field_selector: str = "",
    ) -> None:
        self._objects, self._field_selector = objects, field_selector
        self._on_event, self._on_failure = on_event, on_failure
        self._attempt: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Follow until cancelled."""
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout(None) as self._attempt:  # `relist` makes it expire
                    if failures:
                        await asyncio.sleep(delay(failures))
                    began = loop.time()
                    events = self._objects.watch(field_selector=self._field_selector, on_failure=self._on_failure)
                    async with contextlib.aclosing(events):
                        async for event in events:
                            self._on_event(event)
            except TimeoutError:
                failures = 0  # `relist` was called
            except (ClientError, DecodeError) as error:
                failures = failures + 1 if loop.time() - began < MAX_WAIT else 1
                self._on_failure(error)
            finally:
                self._attempt = None

    def relist(self) -> None:
        """List everything again now, because the known state might be wrong."""
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(0)
