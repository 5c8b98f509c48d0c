"""Which setting brings an attribute of a device that the kernel does not tell: by asking a library or a driver."""

from hostdevices.device import Device

_BY_NVML = frozenset({"hive", "memory", "placement", "profile", "uuid"})


def told_by(name: str, device: Device) -> str:
    """Return the setting that provides an attribute which a device lacks, in brackets; empty if none does."""
    facts = device.attributes
    if name in _BY_NVML and device.kind == "gpu" and facts.get("vendor") == "10de":
        return " (NVIDIA's library says it, with `settings.nvml`)"
    if name == "ddpProfile" and facts.get("vendor") == "8086" and device.kind == "pci":
        return " (the card's driver says it, with `settings.devlink`)"
    return ""
