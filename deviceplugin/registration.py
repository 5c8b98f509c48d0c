"""Registration of one resource at kubelet.sock: does what lifecycle.py says next.

One task at a time works for a resource (serving, registering or waiting); a new action replaces it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from deviceplugin.folder import Identity, PluginFolder, own_socket
from deviceplugin.lifecycle import Action, Event, State, Timings, step
from grpcunix import Backoff, Client, GrpcUnixError, Handler, UnixServer, connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

VERSION = "v1beta1"
log = logging.getLogger("nodeplug.deviceplugin")
_SERVICE = api.DESCRIPTOR.services_by_name["Registration"]


class Registration:
    """Keeps one resource served and registered from `start` to `stop`."""

    def __init__(
        self,
        resource_name: str,
        folder: PluginFolder,
        handler: Handler,
        options: Callable[[], api.DevicePluginOptions],
        streaming: Callable[[], bool],
        timings: Timings = Timings(),
    ) -> None:
        """Prepare. `handler` serves the resource, `streaming` tells whether the kubelet listens to its list."""
        self.resource_name = resource_name
        self.state = State.DOWN
        self.last_error = ""
        self.registrations = 0
        self._folder = folder
        self._handler = handler
        self._options = options
        self._streaming = streaming
        self._timings = timings
        self._server: UnixServer | None = None
        self._kubelet: Identity | None = None  # the kubelet that we registered with last
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None
        self._stream_since = 0.0
        self._stopped = False

    def start(self) -> None:
        """Begin serving and registering, in the background."""
        self._folder.listen(self.look)
        self._do(Action.SERVE)

    async def stop(self) -> None:
        """Stop serving and remove our socket. Idempotent."""
        self._stopped = True  # the streams that end now call for nothing
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        self.state = State.DOWN

    def look(self) -> None:
        """Compare the folder with what we believe: our socket may be lost, the kubelet may be a new one."""
        if self._server is not None and not self._server.is_in_place():
            self._backoff.reset()
            self._fire(Event.SOCKET_LOST)
        kubelet = self._folder.kubelet()
        if kubelet is not None and kubelet != self._kubelet:
            self._kubelet = kubelet
            self._backoff.reset()
            self._fire(Event.KUBELET_SEEN)

    def stream_changed(self) -> None:
        """Take note that the kubelet opened or ended ListAndWatch."""
        now = asyncio.get_running_loop().time()
        if self._streaming():
            self._stream_since = now
            self._fire(Event.STREAM_OPENED)
        else:
            if now - self._stream_since >= self._timings.stable:
                self._backoff.reset()
            self._fire(Event.STREAM_ENDED)

    def _fire(self, event: Event) -> None:
        if self._stopped:
            return
        before = self.state
        self.state, action = step(before, event)
        if self.state is not before or action is not Action.NOTHING:
            log.debug("%s on %s: %s", event.name, before.name, self.state.name, extra={"resource": self.resource_name})
            self._do(action)

    def _do(self, action: Action) -> None:
        work: dict[Action, Callable[[], Awaitable[None]]] = {
            Action.SERVE: self._serve,
            Action.REGISTER: self._register,
            Action.EXPECT_STREAM: self._expect_stream,
            Action.BACK_OFF: self._back_off,
        }
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = asyncio.ensure_future(self._guard(work[action])) if action in work else None

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            # a bug of ours must not end a resource silently: it is logged, and the resource tries again
            log.exception("registration failed unexpectedly", extra={"resource": self.resource_name})
            self.last_error = repr(error)
            self.state = State.WAITING if self._server else State.DOWN
            self._do(Action.BACK_OFF)

    async def _serve(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        server = UnixServer(
            own_socket(self._folder.path, self.resource_name), [self._handler], keepalive=self._timings.silence
        )
        try:
            await server.start()
        except (OSError, GrpcUnixError) as error:
            self._failed(f"cannot serve: {error}", logging.ERROR)
            self._fire(Event.UNSERVABLE)
            return
        self._server = server
        self._fire(Event.SERVED)

    async def _register(self) -> None:
        self._kubelet = self._folder.kubelet()
        if self._kubelet is None or self._server is None:
            self._fire(Event.KUBELET_MISSING)
            return
        request = api.RegisterRequest(
            version=VERSION,
            endpoint=self._server.path.name,
            resource_name=self.resource_name,
            options=self._options(),
        )
        refusal: grpc.aio.AioRpcError | None = None
        async with connect(self._folder.kubelet_socket) as channel:
            try:
                await Client(channel, _SERVICE).call("Register", request, timeout=self._timings.register)
            except grpc.aio.AioRpcError as error:
                refusal = error
        if refusal is not None:
            # a kubelet that is not up yet, or goes away, is no news
            absent = refusal.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            self._failed(f"the kubelet refused: {refusal.details()}", logging.DEBUG if absent else logging.WARNING)
            self._fire(Event.REFUSED)
            return
        self.registrations += 1
        self.last_error = ""
        log.info("registered", extra={"resource": self.resource_name})
        self._fire(Event.ACCEPTED)
        if self._streaming():  # the stream may overtake the answer
            self._fire(Event.STREAM_OPENED)

    async def _expect_stream(self) -> None:
        await asyncio.sleep(self._timings.stream)
        self._failed(
            f"the kubelet accepted and did not open ListAndWatch within {self._timings.stream:.0f} s", logging.WARNING
        )
        self._fire(Event.OVERDUE)

    async def _back_off(self) -> None:
        await asyncio.sleep(self._backoff.next())
        self._fire(Event.DUE)

    def _failed(self, reason: str, level: int) -> None:
        """Log a reason once, until it changes."""
        if reason != self.last_error:
            log.log(level, "%s", reason, extra={"resource": self.resource_name})
        self.last_error = reason
