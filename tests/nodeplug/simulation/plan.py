"""Plans: steps with a seed each, so that omitting some does not change the others.

A step is an action of the kubelet, the scheduler, an administrator, the hardware or the operating system.
"""

import random
from typing import Literal

from msgspec import Struct

DiskFault = Literal["", "death", "full", "read-only"]


class Step(Struct, frozen=True):
    """An action, and a fault after a number of effects on the disk."""

    kind: str
    seed: int
    disk_fault: DiskFault = ""
    after: int = 0


WEIGHTS = {
    "call": 45,
    "schedule": 20,
    "restart_container": 6,
    "end_claim_pods": 8,
    "end_pods": 5,
    "delete_claim": 4,
    "reallocate": 2,
    "reuse": 8,
    "pass_time": 8,
    "set_clock": 1,
    "unplug": 3,
    "plug": 4,
    "replace_device": 2,
    "swap_ports": 3,
    "change_identity": 3,
    "change_functions": 3,
    "rescan": 2,
    "change_health": 3,
    "restart_kubelet": 5,
    "toggle_api_server": 2,
    "falsify_records": 3,
    "change_configuration": 8,
    "lose_state": 2,
    "stop": 3,
    "kill": 2,
    "reboot": 2,
}


_DISK_FAULTS: dict[DiskFault, int] = {"": 60, "death": 30, "full": 6, "read-only": 4}
_WITH_EFFECTS = (
    "call",
    "pass_time",
    "restart_container",
    "unplug",
    "plug",
    "swap_ports",
    "change_identity",
    "rescan",
    "stop",
    "change_configuration",
    "reuse",
)


def plan(seed: int, length: int = 24) -> list[Step]:
    """The steps of a seed."""
    rng = random.Random(seed)
    steps = []
    weights = [
        weight * rng.choice((0.2, 1, 1, 4)) for weight in WEIGHTS.values()
    ]  # each simulation has other preferences
    for kind in ("schedule",) * 3 + tuple(rng.choices(list(WEIGHTS), weights, k=length - 3)):
        disk_fault: DiskFault
        (disk_fault,) = rng.choices(list(_DISK_FAULTS), list(_DISK_FAULTS.values())) if kind in _WITH_EFFECTS else ("",)
        steps.append(Step(kind, rng.getrandbits(32), disk_fault, int(rng.expovariate(0.2))))
    return steps
