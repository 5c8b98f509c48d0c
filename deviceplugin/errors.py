"""Errors of the device plugin side; each text names the subject, the rule and what to do."""

from typing import ClassVar

from telemetry import RefusalReason


class DevicePluginError(Exception):
    """Root of this folder's errors."""


class AllocationRefused(DevicePluginError):
    """The devices asked for are not handed out; `reason` is what it is counted as."""

    reason: ClassVar[RefusalReason] = "not-ready"


class InvalidRequest(AllocationRefused):
    """The request itself is wrong: unknown, foreign or repeated ids, or none."""

    reason = "invalid-request"


class DeviceNotReady(AllocationRefused):
    """A device cannot be used now: unhealthy, gone, changed, or held by somebody else."""


class StateUnavailable(AllocationRefused):
    """The lease cannot be recorded, so nothing is promised."""

    reason = "state-unavailable"
