"""The watch on a driver's slices: a thread that reads, and what it reads handed to the loop.

Only the watch that was begun last is heard. Its first event lists what there is then.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeAlias

from dra_plugin.slices.compare import comparable
from resourceapi.client import AnyVersion, Event, Watch
from resourceapi.client.patience import pause
from resourceapi.objects import v1

SliceEvent: TypeAlias = Event[v1.ResourceSlice]
_Watch: TypeAlias = Watch[v1.ResourceSlice]
_PATIENCE = 1.0  # seconds that `stop` gives a thread which waits for a server


class Watcher:
    """Hands events to `on_event` and failures to `on_failure`, both on the loop. It never gives up."""

    def __init__(
        self,
        slices: AnyVersion[v1.ResourceSlice],
        selector: str,
        on_event: Callable[[SliceEvent], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._slices, self._selector = slices, selector
        self._on_event, self._on_failure = on_event, on_failure
        self._failures = 0
        self._watch: _Watch | None = None
        self._thread: threading.Thread | None = None
        self._again: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch from now on; what was begun before is forgotten."""
        self._end()
        loop = asyncio.get_running_loop()

        def tell(function: Callable[..., None], *arguments: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(function, *arguments)

        watch = self._slices.watch(field_selector=self._selector, on_failure=lambda error: tell(self._failed, error))
        self._watch = watch
        self._thread = threading.Thread(target=self._read, args=(watch, tell), name="ResourceSlices", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End. A thread that waits for a server which does not answer is left to its own time limit."""
        self._end()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _PATIENCE)

    def _end(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.close()

    def _read(self, watch: _Watch, tell: Callable[..., None]) -> None:
        """The thread."""
        try:
            for event in watch:
                tell(self._heard, watch, event._replace(items=tuple(map(comparable, event.items))))
        except Exception as error:  # a refusal, or whatever a server's nonsense leads to: never a silent end
            tell(self._refused, watch, error)

    def _heard(self, watch: _Watch, event: SliceEvent) -> None:
        if watch is self._watch:
            self._failures = 0
            self._on_event(event)

    def _refused(self, watch: _Watch, error: Exception) -> None:
        if watch is self._watch:
            self._failures += 1
            self._again = asyncio.get_running_loop().call_later(pause(self._failures), self.begin)
            self._on_failure(error)

    def _failed(self, error: Exception) -> None:
        if self._watch is not None:
            self._on_failure(error)
