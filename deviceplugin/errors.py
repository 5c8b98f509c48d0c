"""What can go wrong on the device plugin side; each text names the thing, the rule and what to do."""


class DevicePluginError(Exception):
    """Root of this folder's errors."""


class AllocationRefused(DevicePluginError):
    """The devices asked for are not handed out."""


class InvalidRequest(AllocationRefused):
    """The request itself is wrong: unknown, foreign or repeated ids, or none."""


class DeviceNotReady(AllocationRefused):
    """A device cannot be used now: unhealthy, gone, changed, or held by somebody else."""


class StateUnavailable(AllocationRefused):
    """The lease cannot be recorded, so nothing is promised."""
