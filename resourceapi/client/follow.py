"""A watch for asyncio: a thread waits for the server, and what happens is told on the loop. It never gives up."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from resourceapi.client.errors import ClientError
from resourceapi.client.patience import pause
from resourceapi.client.watch import Event, Watch
from resourceapi.objects import DecodeError

T = TypeVar("T")

_PATIENCE = 2.0


class Watched(Protocol[T]):
    """What can be watched: a Resource or AnyVersion."""

    def watch(self, namespace: str = "", *, field_selector: str = "", stop: threading.Event | None = None) -> Watch[T]:
        """All objects and what happens to them."""
        ...


class Follower(Generic[T]):
    """Follows objects from `start` to `stop`, both on the loop that is told.

    `on_event` gets the events; `on_failure` what waiting could not mend, after which everything is listed anew.
    """

    def __init__(
        self,
        objects: Watched[T],
        on_event: Callable[[Event[T]], None],
        on_failure: Callable[[Exception], None],
        *,
        field_selector: str = "",
    ) -> None:
        self._objects, self._field_selector = objects, field_selector
        self._on_event, self._on_failure = on_event, on_failure
        self._stop = threading.Event()
        self._watch: Watch[T] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._follow, args=(loop,), name="watch", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End. A thread that waits for a server which does not answer is left to its own time limit. Idempotent."""
        self._stop.set()
        if self._watch is not None:
            self._watch.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.join, _PATIENCE)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread."""
        failures = 0
        while not self._stop.is_set():
            self._watch = self._objects.watch(field_selector=self._field_selector, stop=self._stop)
            try:
                for event in self._watch:
                    failures = 0
                    self._tell(loop, self._on_event, event)
            except (ClientError, DecodeError) as error:
                failures += 1
                self._tell(loop, self._on_failure, error)
                self._stop.wait(pause(failures))

    def _tell(self, loop: asyncio.AbstractEventLoop, function: Callable[..., None], argument: object) -> None:
        if not self._stop.is_set():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(function, argument)
