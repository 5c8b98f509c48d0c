"""The gRPC side of the driver as a whole: its two sockets, its services, and the kubelet's registration.

serve the driver's socket -> serve the registration socket -> the kubelet finds it, asks, and calls
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from dra_plugin.driver import Driver
from dra_plugin.preparing.claim_locks import ClaimLocks
from dra_plugin.serving.calls import ClaimCalls
from dra_plugin.serving.claims import ClaimSource
from dra_plugin.serving.health import HealthPublisher
from dra_plugin.serving.kubelet_presence import kubelet_gone
from dra_plugin.serving.registration import Registrar, Registration
from dra_plugin.serving.server import services
from dra_plugin.serving.sockets import plugin_socket, registration_socket, remove_dead_instances
from folderwatch import FolderWatcher, is_missing
from grpcunix import PersistentServer, Transport, handler
from kubeletapi.pluginregistration.v1 import api_pb2 as registration
from telemetry import Telemetry

log = logging.getLogger("nodeplug.dra")

GRACE = 5.0  # seconds for the driver's work when the plugin stops
CLOSE_DELAY = 0.5  # seconds within which a process that ends has closed all its sockets
MAX_BACKOFF = 2.0  # seconds between attempts to serve while a folder is missing
STATUS_TIMEOUT = 30.0  # seconds between GetInfo and the kubelet's registration status, which needs at most 6
_REGISTRATION = registration.DESCRIPTOR.services_by_name["Registration"]


class Folders(Struct, frozen=True):
    """Where the sockets are; the kubelet sees both folders at the same paths."""

    registry: Path  # the kubelet's, /var/lib/kubelet/plugins_registry; the plugin waits until it exists
    data: Path  # the driver's own, /var/lib/kubelet/plugins/<driver>; the plugin creates it
    kubelet_socket: Path | None = None  # /var/lib/kubelet/device-plugins/kubelet.sock, where the kubelet itself listens


class KubeletPlugin:
    """Serves a driver to the kubelet while `run` runs."""

    def __init__(
        self,
        driver_name: str,
        driver: Driver | asyncio.Future[Driver],
        claims: ClaimSource,
        health: HealthPublisher,
        folders: Folders,
        watcher: FolderWatcher,
        claim_locks: ClaimLocks | None = None,
        pod_uid: str = "",
        transport: Transport = "builtin",
        telemetry: Telemetry | None = None,
    ) -> None:
        """Prepare. With a `pod_uid` the sockets have unique names, so that two instances can serve at once.

        If `driver` is a pending future, each call waits for it within its deadline. Raises ValueError for an empty
        `driver_name`.
        """
        if not driver_name:
            raise ValueError("driver name must be set")
        self.endpoint = plugin_socket(folders.data, driver_name, pod_uid)
        """The driver's socket, as reported to the kubelet."""
        self._driver_name = driver_name
        self._folders = folders
        self._watcher = watcher
        self._health = health
        self._calls = ClaimCalls(driver, claims, claim_locks)
        telemetry = telemetry or Telemetry()
        self._registrar = Registrar(driver_name, self.endpoint, telemetry=telemetry)
        self._plugin = PersistentServer(
            self._make_endpoint,
            services(self._calls, health, telemetry),
            _cannot_serve("the driver", folders.data, lambda: self._plugin.error),
            watcher,
            max_backoff=MAX_BACKOFF,
            grace=GRACE,
            transport=transport,
        )
        registered_at = registration_socket(folders.registry, driver_name, pod_uid)
        self._registration = PersistentServer(
            lambda: registered_at,
            [handler(_REGISTRATION, self._registrar)],
            _cannot_serve("the registration", folders.registry, lambda: self._registration.error),
            watcher,
            max_backoff=MAX_BACKOFF,
            transport=transport,
        )

    @property
    def registration_status(self) -> Registration | None:
        """Return the kubelet's last registration status; None before the first one."""
        return self._registrar.status

    @property
    def registrations(self) -> int:
        """Return how often a kubelet registered the driver."""
        return self._registrar.registrations

    @property
    def errors(self) -> tuple[str, ...]:
        """Return why a socket cannot be served now; empty if both are served."""
        return tuple(server.error for server in (self._plugin, self._registration) if server.error)

    async def registered(self) -> None:
        """Wait until a kubelet has registered the driver."""
        await self._registrar.registered.wait()

    async def run(self) -> None:
        """Serve, then offer for registration. A socket that cannot be served yet is retried until it can.

        On cancellation the registration socket goes first, so that the kubelet sends no more calls. The driver's work
        gets a few seconds to finish and be answered; calls that only wait are answered with an error, and the kubelet
        repeats them.
        """
        try:
            remove_dead_instances(self._folders.registry, self._folders.data, self._driver_name)
        except OSError as error:
            log.warning("cannot remove sockets of earlier instances: %s", error)
        plugin = asyncio.create_task(self._plugin.run())
        registration = asyncio.create_task(self._serve_registration())
        watchers = [asyncio.create_task(self._watch_kubelet()), asyncio.create_task(self._reregister_unaccepted())]
        try:
            done, _ = await asyncio.wait((plugin, registration, *watchers), return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()  # raises the error that ended it
        finally:
            for task in (*watchers, registration):
                await _end(task)
            self._health.close()
            self._calls.close()
            await _end(plugin)
            await self._calls.finish(GRACE)

    async def _serve_registration(self) -> None:
        await self._plugin.served.wait()
        await self._registration.run()

    async def _watch_kubelet(self) -> None:
        """Withdraw the registration status when the kubelet that accepted the driver is gone."""
        kubelet_socket = self._folders.kubelet_socket
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        self._health.observe_ends(lambda: loop.call_later(CLOSE_DELAY, changed.set))  # its streams end with the kubelet
        while kubelet_socket is not None:
            await kubelet_gone(kubelet_socket, self._watcher, changed)
            self._registrar.kubelet_gone(kubelet_socket)
        await loop.create_future()  # until cancelled

    async def _reregister_unaccepted(self) -> None:
        """Offer the driver again if a kubelet asked and did not accept: up to 1.35 it asks once for each socket.

        It might have refused for a temporary reason, or its answer was lost.
        """
        registrar = self._registrar
        while True:
            await registrar.info_requested.wait()
            await asyncio.sleep(STATUS_TIMEOUT)
            is_accepted = registrar.status is not None and registrar.status.registered
            if registrar.info_requested.is_set() and not is_accepted:
                await self._registration.renew()
            registrar.info_requested.clear()

    def _make_endpoint(self) -> Path:
        self._folders.data.mkdir(mode=0o750, parents=True, exist_ok=True)
        return self.endpoint


def _cannot_serve(what: str, folder: Path, error: Callable[[], str]) -> Callable[[str], None]:
    """Return the function that logs why a socket is not served; a missing kubelet folder is only a warning.

    `error` returns the present reason.
    """

    def log_reason(reason: str) -> None:
        if is_missing(folder):
            text = (
                "waiting for the kubelet: there is no %s; if the kubelet has another folder, set settings.kubeletRoot"
            )
            log.warning(text, folder, extra={"is_current": lambda: is_missing(folder)})
        else:
            text, extra = "cannot serve %s: %s; nodeplug tries again", {"is_current": lambda: error() == reason}
            log.error(text, what, reason, extra=extra)

    return log_reason


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
