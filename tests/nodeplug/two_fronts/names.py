"""The names of units: our own ids, or what other programs expect (`ids`), with the number of a share behind."""

import re

_SHARE = re.compile(r"(?P<other>.+)::[0-9]+|(?P<own>[-a-z0-9]+)\.[0-9]+")
_OTHER = re.compile(r"/dev/.+|[0-9a-f]{4}:.+")


def without_share(unit: str) -> str:
    """The name of the device that a unit is, or is a share of."""
    found = _SHARE.fullmatch(unit)
    return (found["other"] or found["own"]) if found else unit


def is_share(unit: str) -> bool:
    """Whether a unit is one of several of its device."""
    return without_share(unit) != unit


def is_own(unit: str) -> bool:
    """Whether a unit has its device's own id, which is that device's for ever."""
    return _OTHER.fullmatch(unit) is None


def device_of(name: str) -> str:
    """The device that a published device's name, or a unit's that has an own id, is of."""
    return without_share(name.partition("@")[0].partition("/")[0]).partition("-half")[0]


def address_of(device: str) -> str:
    """The address of a function, or of the function that a device sits on, which its id has."""
    _, domain, bus, slot, function = device.split("-")
    return f"{domain}:{bus}:{slot}.{function}"
