"""The DRAPlugin services, v1 and v1beta1, to and from the wire. Only here do errors of a whole call become statuses.

v1beta1 is v1 without share ids; everything else is the same on the wire. Source: DRA specification, sections 1.1, 1.2
and 2.6.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from checkpoint.holdings import claim_holder
from dra_plugin.driver import ClaimFailed, ClaimRef, PreparedDevice
from dra_plugin.errors import NotAnsweredInTime
from dra_plugin.serving.calls import ClaimCalls
from dra_plugin.serving.health import HealthPublisher
from grpcunix import Context, Handler, RpcError, Status, handler
from hostdevices.printable import printable
from kubeletapi.dra.v1 import api_pb2 as v1
from kubeletapi.dra.v1beta1 import api_pb2 as v1beta1
from kubeletapi.dra_health.v1 import api_pb2 as health_v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as health_v1alpha1
from telemetry import Histogram, RefusalReason, Span, Telemetry
from telemetry.trace import CLAIM_UIDS, CLAIMS, DEVICES

log = logging.getLogger("nodeplug.dra")
T = TypeVar("T")
ClaimCall: TypeAlias = Callable[[Sequence[ClaimRef], float | None], Awaitable[Mapping[str, T]]]

_MAX_REASON = 2_000  # characters of a claim's error; the kubelet makes it an event, which has at most 1,024
_MAX_EVENT = 500  # characters of the same text in this daemon's own events
_MAX_CLAIMS = 5  # claims that a log line names
_NO_ANSWER: Final[RefusalReason] = "no-answer"
_DEFECT: Final[RefusalReason] = "defect"
_MARGIN = 1.0  # seconds before the kubelet's deadline, so that the answer still arrives


def services(calls: ClaimCalls, health: HealthPublisher, telemetry: Telemetry) -> list[Handler]:
    """Return the handlers of all services of a driver's socket (see `registration.SERVICES`)."""
    return [
        handler(v1.DESCRIPTOR.services_by_name["DRAPlugin"], DRAPlugin(calls, telemetry, share_ids=True)),
        handler(v1beta1.DESCRIPTOR.services_by_name["DRAPlugin"], DRAPlugin(calls, telemetry, share_ids=False)),
        handler(health_v1.DESCRIPTOR.services_by_name["DRAResourceHealth"], health),
        handler(health_v1alpha1.DESCRIPTOR.services_by_name["DRAResourceHealth"], health),
    ]


class DRAPlugin:
    """One version of the service."""

    def __init__(self, calls: ClaimCalls, telemetry: Telemetry, *, share_ids: bool) -> None:
        """Serve `calls`, with or without `share_ids` in the answers."""
        self._calls = calls
        self._telemetry = telemetry
        self._share_ids = share_ids
        self._service = (v1 if share_ids else v1beta1).DESCRIPTOR.services_by_name["DRAPlugin"].full_name

    async def node_prepare_resources(
        self, request: v1.NodePrepareResourcesRequest, context: Context
    ) -> v1.NodePrepareResourcesResponse:
        """Prepare claims; each claim has its own outcome in the response."""
        with self._span("NodePrepareResources", request.claims, context) as span:
            outcomes = await self._call_driver(
                "prepare", self._calls.prepare, request.claims, context, self._telemetry.prepare
            )
            if span.is_recorded:
                prepared = [x for x in outcomes.values() if not isinstance(x, ClaimFailed)]
                span.set(DEVICES, [device.device for devices in prepared for device in devices])
                _record_failures(span, outcomes)
        response = v1.NodePrepareResourcesResponse()
        for uid, outcome in outcomes.items():
            entry = response.claims[uid]
            if isinstance(outcome, ClaimFailed):
                entry.error = printable(outcome.reason, _MAX_REASON)
            else:
                entry.devices.extend(self._device(device) for device in outcome)
        return response

    async def node_unprepare_resources(
        self, request: v1.NodeUnprepareResourcesRequest, context: Context
    ) -> v1.NodeUnprepareResourcesResponse:
        """Unprepare claims; each claim has its own outcome in the response."""
        with self._span("NodeUnprepareResources", request.claims, context) as span:
            outcomes = await self._call_driver(
                "unprepare", self._calls.unprepare, request.claims, context, self._telemetry.unprepare
            )
            _record_failures(span, outcomes)
        response = v1.NodeUnprepareResourcesResponse()
        for uid, outcome in outcomes.items():
            entry = response.claims[uid]
            if outcome is not None:
                entry.error = printable(outcome.reason, _MAX_REASON)
        return response

    def _device(self, prepared: PreparedDevice) -> v1.Device:
        """Encode a device. Pods do not name subrequests, so only the base name of each request is sent."""
        return v1.Device(
            request_names=dict.fromkeys(request.partition("/")[0] for request in prepared.requests),
            pool_name=prepared.pool,
            device_name=prepared.device,
            cdi_device_ids=prepared.cdi_device_ids,
            share_id=prepared.share_id if self._share_ids else None,
        )

    def _span(self, method: str, claims: Sequence[v1.Claim], context: Context) -> Span:
        span = self._telemetry.tracer.call(self._service, method, context.trace_context())
        if span.is_recorded:
            span.set(CLAIMS, [f"{claim.namespace}/{claim.name}" for claim in claims])
            span.set(CLAIM_UIDS, [claim.uid for claim in claims])
        return span

    async def _call_driver(
        self, verb: str, call: ClaimCall[T], claims: Sequence[v1.Claim], context: Context, seconds: Histogram
    ) -> Mapping[str, T]:
        """Return the outcome of every claim before the kubelet's deadline. Raises `RpcError` if there is none."""
        refs = [ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in claims]
        left = context.time_remaining()
        began = time.perf_counter()
        try:
            outcomes = await call(refs, None if left is None else max(left - _MARGIN, left / 2))
        except NotAnsweredInTime as late:
            code, reason, counted_as = Status.UNAVAILABLE, str(late), _NO_ANSWER
        except Exception as error:  # a bug, logged by the driver: the kubelet gets the error and repeats
            code, reason, counted_as = Status.INTERNAL, f"{verb} resource claims: {error}", _DEFECT
        else:
            self._count(refs, outcomes)
            return outcomes
        finally:
            seconds.observe(time.perf_counter() - began)
        names = ", ".join(map(str, refs[:_MAX_CLAIMS])) + (
            f" and {len(refs) - _MAX_CLAIMS} more" if len(refs) > _MAX_CLAIMS else ""
        )
        log.warning("cannot %s %s: %s", verb, names, reason)
        self._telemetry.record_refusal("dra", counted_as, printable(f"cannot {verb} {names}: {reason}", _MAX_EVENT))
        raise RpcError(code, reason)

    def _count(self, refs: Sequence[ClaimRef], outcomes: Mapping[str, object]) -> None:
        """Count and record the refused claims."""
        for ref in refs:
            outcome = outcomes.get(ref.uid)
            if isinstance(outcome, ClaimFailed):
                why = printable(outcome.reason, _MAX_EVENT)
                holder = printable(claim_holder(ref.namespace, ref.name, ref.uid), _MAX_EVENT)
                self._telemetry.record_refusal("dra", outcome.counted_as, why, holder=holder)


def _record_failures(span: Span, outcomes: Mapping[str, object]) -> None:
    """Add the failed claims to a call's span: the call itself has not failed."""
    if failed := [outcome.reason for outcome in outcomes.values() if isinstance(outcome, ClaimFailed)]:
        span.fail("; ".join(failed[:_MAX_CLAIMS]))
