"""Devices that no new pod gets, because an administrator has withheld them.

Rules:
1. The device is named by its stable id. It stays withheld while it is unplugged, with every configuration, and after
   every restart, until it is readmitted.
2. Leases stay. Pods keep what they have, and their lost leases are restored.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

MAX_WITHHELD: Final = 4096
"""The most devices that can be withheld at a time."""
MAX_REASON_LENGTH: Final = 200
"""The most characters of a reason."""


class Withheld(Struct, frozen=True):
    """A withheld device, the reason (empty if none was stated), and since when, in seconds since the epoch."""

    device: str
    reason: str
    since: float


def withheld_reason(device: str, concerned: Iterable[str], withheld: Mapping[str, Withheld]) -> str:
    """Return why a device is withheld from new holders, in words; empty if none of `concerned` is withheld.

    `concerned` are the ids of the device, its members and the wholes that it is a part of.
    """
    if not withheld:
        return ""
    found = next((withheld[i] for i in (device, *sorted(concerned)) if i in withheld), None)
    if found is None:
        return ""
    words = "withheld" if found.device == device else f"withheld with {found.device}"
    return f"{words}: {found.reason}" if found.reason else words
