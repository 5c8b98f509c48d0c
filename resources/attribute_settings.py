"""The setting that adds an attribute which the kernel does not provide, but a library or a driver does."""

from hostdevices.device import Device

_BY_NVML = frozenset({"hive", "memory", "placement", "profile", "uuid"})


def providing_setting(name: str, device: Device) -> str:
    """Return the setting that provides an attribute which a device lacks, in brackets; empty if none does."""
    facts = device.attributes
    if name in _BY_NVML and device.kind == "gpu" and facts.get("vendor") == "10de":
        return " (set `settings.nvml` to read it from NVIDIA's library)"
    if name == "ddpProfile" and facts.get("vendor") == "8086" and device.kind == "pci":
        return " (set `settings.devlink` to read it from the card's driver)"
    return ""
