"""What scenarios are made of.

A scenario must be played the same way by the stand-in and by the real kubelet, of every release. It asserts what it
observes, so that all runs observe the same; where releases differ it asks `stage.release` what is to be seen, and what
a kubelet may choose as it likes is left open. One that needs a feature gate is not played where that is off.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from kubelet import Release
from kubelet.devicemanager import Device
from tests.kubelet.both.claims_stage import ClaimsStage
from tests.kubelet.both.world import PodView

Play = Callable[[ClaimsStage], Awaitable[None]]

NO_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices {}"


class Scenario(Struct, frozen=True):
    """A scenario and the feature gate that it needs, if any."""

    play: Play
    gate: str = ""

    def why_not(self, release: Release) -> str:
        """Why it cannot be played by a release; empty where it can."""
        return release.why_not(self.gate) if self.gate else ""


SCENARIOS: dict[str, Scenario] = {}


def both(play: Play) -> Play:
    """Play this scenario on both."""
    SCENARIOS[play.__name__.replace("_", "-")] = Scenario(play)
    return play


def both_with(gate: str) -> Callable[[Play], Play]:
    """Play this scenario on both, where a feature gate is on."""

    def note(play: Play) -> Play:
        SCENARIOS[play.__name__.replace("_", "-")] = Scenario(play, gate)
        return play

    return note


def is_last(view: PodView) -> bool:
    """Whether a deleted pod's status shows how its one container `c` ended."""
    container = view.containers["c"]
    return container.exit_code is not None and view.phase == ("Failed" if container.exit_code else "Succeeded")


def good(*ids: str) -> list[Device]:
    """Healthy devices."""
    return [Device(id_) for id_ in ids]


def bad(*ids: str) -> list[Device]:
    """Unhealthy devices."""
    return [Device(id_, "Unhealthy") for id_ in ids]
