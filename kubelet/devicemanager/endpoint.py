"""The calls to one plugin, from its registration until five minutes after it was lost.

Source: device manager specification, section 3.1.
"""

from collections.abc import Iterable
from pathlib import Path

from grpcunix import Client
from kubelet.clock import Clock
from kubelet.errors import PluginCallError
from kubelet.rpc import Timeouts, await_unary
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

GRACE_PERIOD = 300.0  # seconds; a resource whose plugin is gone longer than this leaves the node


class Endpoint:
    """The calls to a plugin. An endpoint restored from the checkpoint has no `client` and is stopped from the start."""

    def __init__(
        self, socket: Path, client: Client | None, options: api.DevicePluginOptions | None, clock: Clock, wait: Timeouts
    ) -> None:
        """`options` are the plugin's options from its registration; None if it has not registered."""
        self.socket = socket
        self.options = options
        self.stopped_at: float | None = None
        self._client = client
        self._clock = clock
        self._wait = wait
        if client is None:
            self.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether the plugin is lost."""
        return self.stopped_at is not None

    @property
    def is_expired(self) -> bool:
        """Whether the plugin was lost longer than the grace period ago."""
        return self.stopped_at is not None and self._clock.now() - self.stopped_at > GRACE_PERIOD

    def stop(self) -> None:
        """Record that the plugin is lost now."""
        self.stopped_at = self._clock.now()

    async def allocate(self, ids: Iterable[str]) -> api.AllocateResponse:
        """Call Allocate for `ids`, without a deadline, like the kubelet. Raises `PluginCallError`."""
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
        response: api.AllocateResponse = await await_unary(self._running().call("Allocate", request), self.socket)
        return response

    async def preferred_allocation(
        self, available: Iterable[str], must_include: Iterable[str], size: int
    ) -> api.PreferredAllocationResponse:
        """Call GetPreferredAllocation for `size` devices of `available`. Raises `PluginCallError`."""
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
                )
            ]
        )
        response: api.PreferredAllocationResponse = await await_unary(
            self._running().call("GetPreferredAllocation", request), self.socket
        )
        return response

    async def pre_start_container(self, ids: Iterable[str]) -> None:
        """Call PreStartContainer for a container that is about to start with `ids`. Raises `PluginCallError`."""
        request = api.PreStartContainerRequest(devices_ids=ids)
        call = self._running().call("PreStartContainer", request, timeout=self._wait.pre_start)
        await await_unary(call, self.socket)

    def _running(self) -> Client:
        if self._client is None or self.is_stopped:
            raise PluginCallError(f"endpoint {self.socket} has been stopped")
        return self._client
