"""Devices and shorthands that the selector tests share."""

from typing import Any

from resourceapi.cel import DeviceView, Semver, compile_selector, device_environment
from resourceapi.objects import Quantity

DRIVER = "dra.example.com"
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
CAPACITY = f'device.capacity["{DRIVER}"]'


def device(attributes: dict[str, Any] | None = None, capacity: dict[str, str] | None = None, **more: Any) -> DeviceView:
    """A device of the driver `dra.example.com`; capacities are texts."""
    amounts = {name: Quantity.parse(text) for name, text in (capacity or {}).items()}
    return DeviceView(more.pop("driver", DRIVER), attributes or {}, amounts, **more)


def versions(*texts: str) -> list[Semver]:
    """Versions from their texts."""
    return [Semver.parse(text) for text in texts]


def matches(expression: str, view: DeviceView | None = None) -> bool:
    """Return whether a stored selector matches."""
    return compile_selector(expression, device_environment()).matches(view or device())
