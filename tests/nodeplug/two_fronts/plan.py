"""Plans: steps, each with a seed of its own, so that some can be left out and the others stay what they are.

A step is something that the kubelet, the scheduler, an administrator, the hardware or the operating system does.
"""

import random
from typing import Literal

from msgspec import Struct

Mishap = Literal["", "death", "full", "read-only"]


class Step(Struct, frozen=True):
    """What happens, and what goes wrong after how many effects on the disk."""

    kind: str
    seed: int
    mishap: Mishap = ""
    after: int = 0


WEIGHTS = {
    "call": 45,
    "schedule": 20,
    "finish": 8,
    "end_pods": 5,
    "delete": 4,
    "reallocate": 2,
    "pass_time": 8,
    "unplug": 3,
    "plug": 4,
    "move": 2,
    "rescan": 2,
    "health": 3,
    "withhold": 2,
    "kubelet": 3,
    "server": 2,
    "stop": 3,
    "kill": 2,
    "reboot": 2,
}


_MISHAPS: dict[Mishap, int] = {"": 60, "death": 30, "full": 6, "read-only": 4}
_WITH_EFFECTS = ("call", "pass_time", "unplug", "plug", "rescan", "withhold", "kubelet", "stop", "reboot")


def plan(seed: int, length: int = 24) -> list[Step]:
    """The steps of a seed."""
    rng = random.Random(seed)
    steps = []
    for kind in ("schedule",) * 3 + tuple(rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length - 3)):
        mishap: Mishap
        (mishap,) = rng.choices(list(_MISHAPS), list(_MISHAPS.values())) if kind in _WITH_EFFECTS else ("",)
        steps.append(Step(kind, rng.getrandbits(32), mishap, int(rng.expovariate(0.2))))
    return steps
