"""Registration through the plugin watcher: the kubelet finds a socket in plugins_registry and asks for its plugin.

The kubelet retries by itself, and finds the socket again after its restart. It does not notice a stream that it dropped
or could not open; then a new socket replaces the old one, and the watcher takes it as a new plugin. While a successor
serves the resource (an update) this instance sends nothing, as at kubelet.sock: the kubelet uses the last list,
whichever instance sends it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from deviceplugin.folder import SUPERSEDED, has_successor, is_own_socket, new_socket
from deviceplugin.lifecycle import Timings
from deviceplugin.registration import VERSION
from folderwatch import FolderWatcher, is_missing
from grpcunix import Backoff, Context, Handler, PersistentServer, Transport, handler
from kubeletapi.pluginregistration.v1 import api_pb2 as registration
from telemetry import Telemetry
from telemetry.trace import RESOURCE

log = logging.getLogger("nodeplug.deviceplugin")
_SERVICE = registration.DESCRIPTOR.services_by_name["Registration"]


class WatcherRegistration:
    """Serves one resource in the plugin watcher's folder while `run` runs."""

    def __init__(
        self,
        resource_name: str,
        folder: Path,
        instance: str,
        plugin: Handler,
        *,
        streaming: Callable[[], bool],
        suspend_lists: Callable[[bool], None],
        watcher: FolderWatcher,
        timings: Timings = Timings(),
        transport: Transport = "builtin",
        telemetry: Telemetry | None = None,
    ) -> None:
        """Prepare. Both services, registration and `plugin`, are served at one socket in `folder`.

        `suspend_lists` is called when a successor of this `instance` has come (True) or is gone (False).
        """
        self.resource_name = resource_name
        self.registrations = 0
        self.last_error = ""
        self._folder = folder
        self._instance = instance
        self._watcher = watcher
        self._streaming = streaming
        self._suspend_lists = suspend_lists
        self._is_suspended = False
        self._telemetry = telemetry or Telemetry()
        self._timings = timings
        self._server = PersistentServer(
            lambda: new_socket(folder, resource_name, instance),
            (handler(_SERVICE, self), plugin),
            self._cannot_serve,
            watcher,
            keepalive=timings.silence,
            transport=transport,
        )
        self._stream_missing = asyncio.Event()  # the kubelet has no stream open and should have one
        self._backoff = Backoff()
        self._stream_since = 0.0

    async def run(self) -> None:
        """Serve, and register again if the kubelet has dropped the resource."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._server.run(), name=f"socket of {self.resource_name}")
                group.create_task(self._follow_successor(), name=f"successor of {self.resource_name}")
                await self._register_again_without_stream()
        finally:
            self.last_error = ""  # it does not matter any more

    async def _register_again_without_stream(self) -> None:
        while True:
            await self._stream_missing.wait()
            # a restarted kubelet finds the socket by itself: wait as long as its watcher needs
            await asyncio.sleep(self._timings.stream + self._backoff.next())
            self._stream_missing.clear()
            if not (self._streaming() or self._is_suspended):
                text = "the kubelet does not keep ListAndWatch open; registering again"
                log.info(text, extra={"resource": self.resource_name})
                await self._server.renew()

    async def _follow_successor(self) -> None:
        """Send no lists while there is a successor. If the folder cannot be read, the last result stays."""
        changed = asyncio.Event()
        changed.set()
        watch = self._watcher.watch(self._folder, changed.set, is_own_socket)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._timings.recheck):
                        await changed.wait()
                changed.clear()
                with contextlib.suppress(OSError):
                    names = os.listdir(self._folder)
                    self._set_superseded(has_successor(self._folder, names, self.resource_name, self._instance))
        finally:
            watch.close()

    def _set_superseded(self, is_superseded: bool) -> None:
        if is_superseded == self._is_suspended:
            return
        self._is_suspended = is_superseded
        if is_superseded:
            log.info(SUPERSEDED, extra={"resource": self.resource_name})
        self._suspend_lists(is_superseded)
        if not (is_superseded or self._streaming()):
            self._stream_missing.set()

    def stream_changed(self) -> None:
        """Process that the kubelet opened or ended ListAndWatch."""
        now = asyncio.get_running_loop().time()
        if self._streaming():
            self._stream_since = now
            return
        if now - self._stream_since >= self._timings.stable:
            self._backoff.reset()
        self._stream_missing.set()

    async def get_info(self, request: registration.InfoRequest, context: Context) -> registration.PluginInfo:
        """Describe the plugin; the empty endpoint means this same socket."""
        del request, context
        return registration.PluginInfo(type="DevicePlugin", name=self.resource_name, supported_versions=[VERSION])

    async def notify_registration_status(
        self, request: registration.RegistrationStatus, context: Context
    ) -> registration.RegistrationStatusResponse:
        """Record the kubelet's verdict."""
        tracer = self._telemetry.tracer
        with tracer.call(_SERVICE.full_name, "NotifyRegistrationStatus", context.trace_context()) as span:
            span.set(RESOURCE, self.resource_name)
            if not request.plugin_registered:
                span.fail(request.error)
        if request.plugin_registered:
            self.registrations += 1
            self.last_error = ""
            log.info("registered through the plugin watcher", extra={"resource": self.resource_name})
            events = self._telemetry.events
            events.record("registered", "the kubelet has accepted the resource", resource=self.resource_name)
            if not self._streaming():  # the kubelet opens it now, or never
                self._stream_missing.set()
        elif request.error != self.last_error:
            self.last_error = request.error
            extra = {"resource": self.resource_name, "is_current": lambda: self.last_error == request.error}
            log.warning("the kubelet refused: %s", request.error, extra=extra)
        return registration.RegistrationStatusResponse()

    def _cannot_serve(self, reason: str) -> None:
        self.last_error = reason
        extra = {"resource": self.resource_name}
        if is_missing(self._folder):
            text = (
                "waiting for the kubelet: there is no %s; if the kubelet has another folder, set settings.kubeletRoot"
            )
            log.warning(text, self._folder, extra={**extra, "is_current": lambda: is_missing(self._folder)})
        else:
            state = {"is_current": lambda: self.last_error == self._server.error == reason}
            log.error("cannot serve: %s; nodeplug tries again", reason, extra={**extra, **state})
