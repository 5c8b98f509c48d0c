"""What scenarios are made of.

A scenario must be played the same way by the stand-in and by the real kubelet. It asserts what it observes, so that
both runs observe the same; what a kubelet may choose as it likes is left open.
"""

from collections.abc import Awaitable, Callable

from kubelet.devicemanager import Device
from tests.kubelet.both.claims_stage import ClaimsStage

Scenario = Callable[[ClaimsStage], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {}

NO_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices {}"


def both(play: Scenario) -> Scenario:
    """Play this scenario on both."""
    SCENARIOS[play.__name__.replace("_", "-")] = play
    return play


def good(*ids: str) -> list[Device]:
    """Healthy devices."""
    return [Device(id_) for id_ in ids]


def bad(*ids: str) -> list[Device]:
    """Unhealthy devices."""
    return [Device(id_, "Unhealthy") for id_ in ids]
