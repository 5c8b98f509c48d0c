"""Unit names: our own ids, or names that other programs expect (`ids`), with an optional share number at the end."""

import re

_SHARE = re.compile(r"(?P<other>.+)::[0-9]+|(?P<own>[-a-z0-9]+)\.[0-9]+")
_OTHER = re.compile(r"/dev/.+|[0-9a-f]{4}:.+")


def without_share(unit: str) -> str:
    """The device's name of a unit, without its share number."""
    found = _SHARE.fullmatch(unit)
    return (found["other"] or found["own"]) if found else unit


def is_share(unit: str) -> bool:
    """Return whether a unit is one of several of its device."""
    return without_share(unit) != unit


def is_own(unit: str) -> bool:
    """Return whether a unit has its device's own id, which never becomes another device's."""
    return _OTHER.fullmatch(unit) is None


def device_of(name: str) -> str:
    """The device of a published device's name, or of a unit with an own id."""
    return without_share(name.partition("@")[0].partition("/")[0]).partition("-half")[0]


def address_of(device: str) -> str:
    """The address of a function, or of a device's function, from the id."""
    _, domain, bus, slot, function = device.split("-")
    return f"{domain}:{bus}:{slot}.{function}"
