"""The pluginregistration service: describes the driver to the kubelet, and records the kubelet's answer.

Source: DRA specification, sections 1.3, 1.5 and 2.5.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from grpcunix import Context, RpcError, Status
from kubeletapi.pluginregistration.v1 import api_pb2 as api
from telemetry import Telemetry

PLUGIN_TYPE = "DRAPlugin"
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""The services; the kubelet uses the first DRAPlugin version that it knows."""

_SERVICE = api.DESCRIPTOR.services_by_name["Registration"].full_name
log = logging.getLogger("nodeplug.dra")


class Registration(Struct, frozen=True):
    """The kubelet's last answer: registered, or the reason for its refusal."""

    registered: bool
    error: str = ""


class Registrar:
    """Answers the kubelet's plugin watcher, at any time and any number of times."""

    def __init__(
        self,
        driver_name: str,
        endpoint: Path,
        services: Sequence[str] = SERVICES,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Present the driver that serves `services` at the socket `endpoint`."""
        self._telemetry = telemetry or Telemetry()
        self.status: Registration | None = None
        self.registrations = 0
        self.registered = asyncio.Event()  # set once a kubelet has accepted the driver, and never cleared
        self.info_requested = asyncio.Event()  # set by a kubelet's question, cleared by its acceptance
        self._info = api.PluginInfo(
            type=PLUGIN_TYPE, name=driver_name, endpoint=str(endpoint), supported_versions=services
        )

    def kubelet_gone(self, kubelet_socket: Path) -> None:
        """Record that the kubelet which accepted the driver no longer runs; the next one asks again."""
        if self.status is not None and self.status.registered:
            reason = f"waiting for the kubelet: nothing listens at {kubelet_socket}"
            self.status = status = Registration(False, reason)
            extra = {"is_current": lambda: self.status == status}
            log.warning("the DRA driver is not registered any more: %s", reason, extra=extra)

    async def get_info(self, request: api.InfoRequest, context: Context) -> api.PluginInfo:
        """Describe the driver."""
        del request, context
        self.info_requested.set()
        return self._info

    async def notify_registration_status(
        self, request: api.RegistrationStatus, context: Context
    ) -> api.RegistrationStatusResponse:
        """Record the kubelet's verdict. A refusal is answered with an error, which the kubelet also logs."""
        tracer = self._telemetry.tracer
        with tracer.call(_SERVICE, "NotifyRegistrationStatus", context.trace_context()) as span:
            span.set("nodeplug.driver", self._info.name)
            if not request.plugin_registered:
                span.fail(request.error)
        before, status = self.status, Registration(request.plugin_registered, request.error)
        self.status = status
        if request.plugin_registered:
            self.registrations += 1
            self.registered.set()
            self.info_requested.clear()
            log.info("registered as DRA driver %s", self._info.name)
            message = f"the kubelet has accepted the DRA driver {self._info.name}"
            self._telemetry.events.record("registered", message)
            return api.RegistrationStatusResponse()
        if status != before:
            extra = {"is_current": lambda: self.status == status}
            log.error("the kubelet refused the DRA driver: %s", request.error, extra=extra)
        raise RpcError(Status.FAILED_PRECONDITION, f"the kubelet refused the driver: {request.error}")
