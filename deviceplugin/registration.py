"""Registration of one resource at kubelet.sock: performs the steps of lifecycle.py.

One thing is done at a time (registering, waiting for the stream, backing off); an event that requires another step ends
it. While a successor serves the resource (an update), this instance sends nothing: the kubelet uses the last list,
whichever instance sends it, and an old list would replace the new one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from deviceplugin.folder import SUPERSEDED, Identity, PluginFolder, new_socket
from deviceplugin.lifecycle import INITIAL, Action, Event, State, Timings, step
from grpcunix import Backoff, Client, GrpcUnixError, Handler, RpcError, Status, Transport, UnixServer, connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from telemetry import Telemetry
from telemetry.trace import RESOURCE

VERSION = "v1beta1"
log = logging.getLogger("nodeplug.deviceplugin")
_SERVICE = api.DESCRIPTOR.services_by_name["Registration"]


class Registration:
    """Keeps one resource served and registered while `run` runs."""

    def __init__(
        self,
        resource_name: str,
        folder: PluginFolder,
        handler: Handler,
        *,
        options: Callable[[], api.DevicePluginOptions],
        streaming: Callable[[], bool],
        suspend_lists: Callable[[bool], None],
        wait_idle: Callable[[], Awaitable[None]],
        timings: Timings = Timings(),
        transport: Transport = "builtin",
        telemetry: Telemetry | None = None,
    ) -> None:
        """Prepare. `handler` serves the resource, `streaming` returns whether the kubelet has ListAndWatch open.

        `suspend_lists` is called when a successor has come (True) or is gone (False). `wait_idle` waits until no
        Allocate is under way.
        """
        self.resource_name = resource_name
        self.state = State.ABSENT
        self._last_error = ""
        self.registrations = 0
        self._folder = folder
        self._handler = handler
        self._options = options
        self._streaming = streaming
        self._suspend_lists = suspend_lists
        self._wait_idle = wait_idle
        self._timings = timings
        self._transport: Transport = transport
        self._telemetry = telemetry or Telemetry()
        self._servers: list[UnixServer] = []  # the newest last
        self._kubelet: Identity | None = None  # the kubelet of the last registration
        self._backoff = Backoff()
        self._stream_since = 0.0
        self._is_suspended = False
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    @property
    def last_error(self) -> str:
        """Return why the resource is not registered, or that the kubelet is missing; empty without a problem."""
        is_absent = self.state is State.ABSENT and not self._is_suspended
        return self._folder.missing() if is_absent else self._last_error

    async def run(self) -> None:
        """Serve and register until cancelled; then remove the sockets."""
        work: Mapping[Action, Callable[[], Awaitable[Event]]] = {
            Action.REGISTER: self._register,
            Action.EXPECT_STREAM: self._expect_stream,
            Action.BACK_OFF: self._back_off,
        }
        close = self._folder.listen(self._folder_changed)
        try:
            self.state, action = INITIAL
            while True:
                event = await self._next_event(work.get(action))
                before = self.state
                self.state, action = step(before, event) or (before, Action.NOTHING)
                log.debug("%s on %s: %s", event.name, before.name, self.state.name, extra=self._extra)
                if self.state is State.STREAMING:
                    self._last_error = ""  # of a stream that was late
                    await self._stop_servers(keep=1)
                    if not self._streaming():  # it ended before this state was reached, when its end had no effect
                        self._events.put_nowait(Event.STREAM_ENDED)
        finally:
            close()
            self.state, self._last_error = State.ABSENT, ""
            await self._stop_servers(keep=0)

    def stream_changed(self) -> None:
        """Process that the kubelet opened or ended ListAndWatch."""
        now = asyncio.get_running_loop().time()
        if self._streaming():
            self._stream_since = now
            self._events.put_nowait(Event.STREAM_OPENED)
        else:
            if now - self._stream_since >= self._timings.stable:
                self._backoff.reset()
            self._events.put_nowait(Event.STREAM_ENDED)

    async def _next_event(self, work: Callable[[], Awaitable[Event]] | None) -> Event:
        """Run `work` until it returns an event, or another event has an effect in this state."""
        working = asyncio.ensure_future(work()) if work else None
        arriving: asyncio.Future[Event] | None = None
        try:
            while True:
                arriving = asyncio.ensure_future(self._events.get())
                await asyncio.wait({arriving, working} if working else {arriving}, return_when=asyncio.FIRST_COMPLETED)
                if not arriving.done():
                    assert working is not None
                    return working.result()
                if step(self.state, event := arriving.result()) is not None:
                    return event
        finally:
            for task in filter(None, (working, arriving)):
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])

    def _folder_changed(self) -> None:
        """Detect a new kubelet, and a successor that has come or gone."""
        is_superseded = self._folder.has_successor(self.resource_name)
        if is_superseded != self._is_suspended:
            self._is_suspended = is_superseded
            if is_superseded:
                log.info(SUPERSEDED, extra=self._extra)
            self._suspend_lists(is_superseded)
        kubelet = self._folder.kubelet()
        if kubelet is not None and kubelet != self._kubelet and not is_superseded:
            self._backoff.reset()
            self._events.put_nowait(Event.KUBELET_SEEN)

    async def _register(self) -> Event:
        """Serve at a new socket and register it."""
        self._kubelet = self._folder.kubelet()
        if self._kubelet is None or self._is_suspended:
            self._kubelet = None  # after the successor has gone, the kubelet counts as a new one
            return Event.KUBELET_MISSING
        if self._streaming():  # 1.37 takes a second registration as another instance
            return Event.ACCEPTED
        await self._stop_servers(keep=1)
        path = new_socket(self._folder.path, self.resource_name, self._folder.instance)
        server = UnixServer(path, [self._handler], keepalive=self._timings.silence, transport=self._transport)
        try:
            await server.start()
        except (OSError, GrpcUnixError) as error:
            self._folder.check()
            # a kubelet that starts empties the folder, even while a socket is being created
            is_emptied = isinstance(error, FileNotFoundError)
            self._failed(f"cannot serve: {error}", logging.DEBUG if is_emptied else logging.ERROR)
            return Event.REFUSED
        self._servers.append(server)
        request = api.RegisterRequest(
            version=VERSION, endpoint=server.path.name, resource_name=self.resource_name, options=self._options()
        )
        span = self._telemetry.tracer.span(f"{_SERVICE.full_name}/Register", kind="client")
        span.set(RESOURCE, self.resource_name)
        try:
            with span:
                async with connect(self._folder.kubelet_socket, transport=self._transport) as channel:
                    await Client(channel, _SERVICE).call("Register", request, timeout=self._timings.register)
        except RpcError as error:
            if not self._streaming():  # otherwise the answer was lost: a kubelet that streams has accepted
                if error.code in (Status.UNAVAILABLE, Status.CANCELLED):  # the kubelet is not up yet, or is stopping
                    self._last_error = self._folder.report_unanswered(error.details)
                else:
                    self._failed(f"the kubelet refused: {error.details}", logging.WARNING)
                return Event.REFUSED
        self.registrations += 1
        self._last_error = ""
        self._folder.report_answered()
        log.info("registered", extra=self._extra)
        events = self._telemetry.events
        events.record("registered", "the kubelet has accepted the resource", resource=self.resource_name)
        return Event.ACCEPTED

    async def _expect_stream(self) -> Event:
        if self._streaming():  # the stream can be faster than the answer
            return Event.STREAM_OPENED
        await asyncio.sleep(self._timings.stream)
        self._failed(
            f"the kubelet accepted the resource but did not open ListAndWatch within {self._timings.stream:.0f} s",
            logging.WARNING,
        )
        return Event.STREAM_TIMEOUT

    async def _back_off(self) -> Event:
        await asyncio.sleep(self._backoff.next())
        return Event.BACKOFF_EXPIRED

    async def _stop_servers(self, keep: int) -> None:
        """Stop all but the newest `keep` servers: they are unused once a newer one has the stream.

        Pending allocations are answered first: without an answer the kubelet would fail the pod.
        """
        if len(self._servers) <= keep:
            return
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timings.answer):
                    await self._wait_idle()
        finally:
            while len(self._servers) > keep:
                await self._servers.pop(0).stop()

    @property
    def _extra(self) -> dict[str, str]:
        return {"resource": self.resource_name}

    def _failed(self, reason: str, level: int) -> None:
        """Log a reason once, until it changes."""
        if reason != self._last_error:
            log.log(level, "%s", reason, extra={**self._extra, "is_current": lambda: self._last_error == reason})
        self._last_error = reason
