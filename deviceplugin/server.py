"""One resource's DevicePlugin service: the five calls, translated to and from the wire.

Only here do our refusals become gRPC status codes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import NoReturn, TypeAlias

import grpc
import grpc.aio

from deviceplugin.advertise import Advertised
from deviceplugin.allocate import Allocator
from deviceplugin.errors import AllocationRefused, InvalidRequest, StateUnavailable
from deviceplugin.preferred import prefer
from hostdevices import Host
from hostdevices.reset import ResetFailed, reset
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

log = logging.getLogger("nodeplug.deviceplugin")
Context: TypeAlias = grpc.aio.ServicerContext


class DevicePluginServicer:
    """Serves one resource; `advertised` is its list and `allocator` hands out its units.

    `stream_changed` is called after the newest ListAndWatch opened or ended (see `streaming`).
    """

    def __init__(
        self, host: Host, allocator: Allocator, advertised: Advertised, stream_changed: Callable[[], None]
    ) -> None:
        """Serve nothing yet: the list is empty."""
        self._host = host
        self._allocator = allocator
        self._advertised = advertised
        self._stream_changed = stream_changed
        self._newest: asyncio.Event | None = None  # set when there is a list to look at

    @property
    def streaming(self) -> bool:
        """Tell whether the newest ListAndWatch is open."""
        return self._newest is not None

    def publish(self) -> None:
        """Send the list to the newest stream, if it differs from what that stream sent last."""
        if self._newest is not None:
            self._newest.set()

    async def get_device_plugin_options(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        """Say which of the optional calls the kubelet should make."""
        del request, context
        return self.options()

    def options(self) -> api.DevicePluginOptions:
        """Return the options as Register sends them too."""
        resource = self._allocator.resource
        return api.DevicePluginOptions(pre_start_required=resource.reset, get_preferred_allocation_available=True)

    async def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[bytes]:
        """Send the list at once, even when it is empty, and after every change.

        The newest stream gets the lists. An older one stays open and silent: a 1.36 kubelet that sees it end would
        close the newest one too (observed, 9).
        """
        del request, context
        wake = self._newest = asyncio.Event()
        wake.set()
        self._stream_changed()
        sent: bytes | None = None
        try:
            while True:
                await wake.wait()
                wake.clear()
                if wake is self._newest and self._advertised.encoded != sent:
                    sent = self._advertised.encoded
                    yield sent
        finally:
            if wake is self._newest:
                self._newest = None
                self._stream_changed()

    async def get_preferred_allocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        """Choose the units that go best together. Never fails: an error here would reject the pod."""
        del context
        policy, units = self._allocator.resource.preferred, self._allocator.units
        chosen = (
            prefer(policy, units, r.available_deviceIDs, r.must_include_deviceIDs, r.allocation_size)
            for r in request.container_requests
        )
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen]
        )

    async def allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        """Lease the units asked for and answer what each container needs for them."""
        try:
            responses = [await self._allocator.allocate(list(r.devices_ids)) for r in request.container_requests]
        except AllocationRefused as refusal:
            await self._refuse(refusal, context)
        return api.AllocateResponse(container_responses=responses)

    async def pre_start_container(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        """Look again whether the devices are usable and, where the resource asks for it, reset them."""
        try:
            units = self._allocator.check(list(request.devices_ids))
            if self._allocator.resource.reset:
                devices = list({unit.device.id: unit.device for unit in units}.values())
                await asyncio.to_thread(reset, self._host, devices)
        except (AllocationRefused, ResetFailed) as refusal:
            await self._refuse(refusal, context)
        return api.PreStartContainerResponse()

    async def _refuse(self, refusal: AllocationRefused | ResetFailed, context: Context) -> NoReturn:
        log.warning("refused: %s", refusal, extra={"resource": self._allocator.resource.name})
        if isinstance(refusal, InvalidRequest):
            code = grpc.StatusCode.INVALID_ARGUMENT
        elif isinstance(refusal, StateUnavailable):
            code = grpc.StatusCode.UNAVAILABLE
        else:
            code = grpc.StatusCode.FAILED_PRECONDITION
        await context.abort(code, str(refusal))
        raise AssertionError("abort does not return")
