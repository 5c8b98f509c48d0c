"""One resource's DevicePlugin service: the five calls, translated to and from the wire.

Only here do refusals become gRPC status codes.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial

from deviceplugin.advertise import Advertised
from deviceplugin.allocate import Allocator
from deviceplugin.errors import AllocationRefused, InvalidRequest, StateUnavailable
from deviceplugin.preferred import prefer
from deviceplugin.units import API
from grpcunix import Context, RpcError, Status
from hostdevices import Device, Host
from hostdevices.errors import HostExhausted
from hostdevices.printable import printable
from hostdevices.threads import in_thread
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.reset import ResetFailed, reset
from resources.resource import Resource
from resources.selector import NOTHING, concerns
from telemetry import Span, Telemetry
from telemetry.trace import DEVICES, RESOURCE, child_span

_SERVICE = api.DESCRIPTOR.services_by_name["DevicePlugin"].full_name
_MAX_IDS = 5  # units that an event names
_MAX_REASON = 500  # characters of a refusal's reason in an event
log = logging.getLogger("nodeplug.deviceplugin")


class DevicePluginServicer:
    """Serves one resource; `advertised` is its list and `allocator` allocates its units.

    `stream_changed` is called after the newest ListAndWatch opened or ended (see `streaming`).
    """

    def __init__(
        self,
        host: Host,
        allocator: Allocator,
        advertised: Advertised,
        renumbered: frozenset[str],
        stream_changed: Callable[[], None],
        telemetry: Telemetry,
    ) -> None:
        """Prepare with an empty list. `renumbered` are the kinds of devices that can be renumbered."""
        self._telemetry = telemetry
        self._host = host
        self._allocator = allocator
        self._advertised = advertised
        self._stream_changed = stream_changed
        self._renumbered = renumbered
        self._options = self.options_of(allocator.resource)
        self._newest_stream: asyncio.Event | None = None  # set when there is a list to send
        self._noticed_at: float | None = None  # when the host reported the change in the list to send
        self._is_suspended = self._is_forced = False
        self._calls = 0  # allocating calls under way
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no allocating call is under way."""
        await self._idle.wait()

    def _begin_call(self) -> None:
        self._calls += 1
        self._idle.clear()

    def _end_call(self) -> None:
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    @property
    def streaming(self) -> bool:
        """Return whether the newest ListAndWatch is open."""
        return self._newest_stream is not None

    def publish(self, force: bool = False, noticed_at: float | None = None) -> None:
        """Send the list to the newest stream if it differs from what that stream sent last, or `force`.

        `noticed_at` is when the host reported the change, by the loop's clock.
        """
        self._is_forced |= force
        if self._newest_stream is not None and not self._is_suspended:
            self._noticed_at = self._noticed_at or noticed_at
            self._newest_stream.set()

    def suspend_lists(self, is_suspended: bool) -> None:
        """Send nothing while a successor does; afterwards send the list again: the kubelet uses the last one."""
        self._is_suspended = is_suspended
        self.publish(force=not is_suspended)

    async def get_device_plugin_options(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        """Return which of the optional calls the kubelet should make."""
        del request, context
        return self._options

    def options(self) -> api.DevicePluginOptions:
        """Return the options, which Register sends, too."""
        return self._options

    def options_of(self, resource: Resource) -> api.DevicePluginOptions:
        """Return the options with which a resource is registered."""
        return api.DevicePluginOptions(
            pre_start_required=_needs_pre_start(resource, self._renumbered), get_preferred_allocation_available=True
        )

    async def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[bytes]:
        """Send the list at once, even if it is empty, and after every change.

        Only the newest stream gets lists. An older one stays open without further lists: a 1.36 kubelet that sees it
        end would close the newest one, too (observed, 9).
        """
        del request, context
        wake = self._newest_stream = asyncio.Event()
        wake.set()
        self._noticed_at = None
        self._stream_changed()
        sent: bytes | None = None
        try:
            while True:
                await wake.wait()
                wake.clear()
                if wake is self._newest_stream and (self._is_forced or self._advertised.encoded != sent):
                    self._is_forced, sent = False, self._advertised.encoded
                    self._record_latency()
                    yield sent
        finally:
            if wake is self._newest_stream:
                self._newest_stream = None
                self._stream_changed()

    async def get_preferred_allocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        """Choose the units that go best together. Never fails: an error here would reject the pod."""
        policy, units = self._allocator.resource.preferred, self._allocator.units
        with self._span("GetPreferredAllocation", context) as span:
            chosen = [
                prefer(policy, units, await self._free(r), r.must_include_deviceIDs, r.allocation_size)
                for r in request.container_requests
            ]
            if span.is_recorded:
                span.set(DEVICES, [unit for ids in chosen for unit in ids])
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen]
        )

    async def _free(self, request: api.ContainerPreferredAllocationRequest) -> Sequence[str]:
        """Return the available units without those of pods that still run, which Allocate would refuse."""
        available = request.available_deviceIDs
        if not (held := await self._allocator.held_by_running_pods(available)):
            return available
        free = [unit for unit in available if unit not in held]
        return free if len(free) >= request.allocation_size else available

    async def allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        """Lease the requested units and answer what each container needs for them."""
        began = time.perf_counter()
        # a list, because protobuf creates each text again on access
        requests = [[*r.devices_ids] for r in request.container_requests]
        with self._span("Allocate", context) as span:
            if span.is_recorded:
                span.set(DEVICES, [*itertools.chain(*requests)])
            self._begin_call()
            try:
                responses = await self._allocator.allocate(requests)
            except AllocationRefused as refusal:
                raise self._to_rpc_error(refusal, itertools.chain(*requests)) from refusal
            finally:
                self._end_call()
                self._telemetry.allocate.observe(time.perf_counter() - began)
        return api.AllocateResponse(container_responses=responses)

    async def pre_start_container(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        """Verify that the container's stored answer is still valid; reset its devices if configured."""
        with self._span("PreStartContainer", context) as span:
            if span.is_recorded:
                span.set(DEVICES, list(request.devices_ids))
            self._begin_call()
            try:
                devices = await self._allocator.prepare_start(request.devices_ids)
                if self._allocator.resource.reset:
                    with child_span("reset devices"):
                        await self._reset(devices)
            except (AllocationRefused, ResetFailed) as refusal:
                raise self._to_rpc_error(refusal, request.devices_ids) from refusal
            finally:
                self._end_call()
        return api.PreStartContainerResponse()

    async def _reset(self, devices: Sequence[Device]) -> None:
        try:
            await in_thread(partial(reset, self._host, devices))
        except HostExhausted as error:
            raise StateUnavailable(f"{self._allocator.resource.name}: {error}; try again") from error

    def _record_latency(self) -> None:
        if self._noticed_at is not None:
            seconds = asyncio.get_running_loop().time() - self._noticed_at
            self._telemetry.hotplug[API].observe(seconds)
            span = self._telemetry.tracer.span("send devices to the kubelet", ago=seconds)
            span.set(RESOURCE, self._allocator.resource.name)
            span.finish()
            self._noticed_at = None

    def _span(self, method: str, context: Context) -> Span:
        span = self._telemetry.tracer.call(_SERVICE, method, context.trace_context())
        span.set(RESOURCE, self._allocator.resource.name)
        return span

    def _to_rpc_error(self, refusal: AllocationRefused | ResetFailed, units: Iterable[str]) -> RpcError:
        name = self._allocator.resource.name
        log.warning("refused: %s", refusal, extra={"resource": name})
        reason = refusal.reason if isinstance(refusal, AllocationRefused) else "state-unavailable"
        requested = ",".join(map(printable, itertools.islice(units, _MAX_IDS)))
        self._telemetry.record_refusal(
            API, reason, printable(str(refusal), _MAX_REASON), resource=name, device=requested
        )
        if isinstance(refusal, InvalidRequest):
            code = Status.INVALID_ARGUMENT
        elif isinstance(refusal, StateUnavailable):
            code = Status.UNAVAILABLE
        else:
            code = Status.FAILED_PRECONDITION
        return RpcError(code, str(refusal))


def _needs_pre_start(resource: Resource, renumbered: frozenset[str]) -> bool:
    """Return whether a stored answer can be wrong when a container starts again, because nodes can be renumbered.

    True for a resource that is no longer offered, whose devices are unknown.
    """
    if resource.reset or resource.selector == NOTHING:
        return True
    return any(concerns(resource.selector, kind) for kind in renumbered)
