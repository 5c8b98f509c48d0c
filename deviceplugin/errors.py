"""Errors of the device plugin side; each text names the subject, the rule and what to do."""

from typing import ClassVar

from telemetry import RefusalReason


class DevicePluginError(Exception):
    """Root of this folder's errors."""


class AllocationRefused(DevicePluginError):
    """The requested devices are not allocated; `reason` is the metric's label."""

    reason: ClassVar[RefusalReason] = "not-ready"


class InvalidRequest(AllocationRefused):
    """The request itself is wrong: unknown, foreign or repeated ids, or none."""

    reason = "invalid-request"


class DeviceNotReady(AllocationRefused):
    """A device cannot be used now: unhealthy, gone, changed, or held by another owner."""


class StateUnavailable(AllocationRefused):
    """The lease cannot be recorded, so the request is refused."""

    reason = "state-unavailable"
