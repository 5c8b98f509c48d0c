"""Devices that nobody new is given, because somebody who runs the node says so.

Rules:
1. It is said of hardware, by its stable id: it counts while the device is away, whatever the configuration offers, and
   after every restart, until somebody takes it back.
2. Leases live on. What pods have they keep, and what they had and was lost is leased to them again.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

MOST: Final = 4096
"""The most devices that can be withheld at a time."""
LONGEST: Final = 200
"""The most characters of a reason."""


class Withheld(Struct, frozen=True):
    """A withheld device, the reason (empty if none was stated), and since when, in seconds since the epoch."""

    device: str
    reason: str
    since: float


def why_withheld(device: str, concerned: Iterable[str], withheld: Mapping[str, Withheld]) -> str:
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
