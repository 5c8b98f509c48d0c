"""Withheld devices: present, but not to be handed out until somebody readmits them, and why.

A withheld whole withholds its parts; a part does not withhold the whole's other parts.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from checkpoint.errors import LeaseRefused
from checkpoint.lease import Lease


class Withheld(Struct, frozen=True):
    """A device that is kept back. `since` in seconds of the Unix clock."""

    device: str
    reason: str
    since: float


def refuse_withheld(withheld: Mapping[str, Withheld], wanted: Iterable[Lease]) -> None:
    """Raise `LeaseRefused` for the first lease that would hand out a withheld device or a part of one."""
    if not withheld:
        return
    for lease in wanted:
        for device in sorted((lease.occupies | lease.touches) & withheld.keys()):
            raise LeaseRefused(
                f"device {device}: withheld ({withheld[device].reason}), so {lease.resource} cannot hand out"
                f" {lease.unit}; readmit the device once it is sound",
                device,
            )
