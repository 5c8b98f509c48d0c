"""The building blocks of scenarios.

A scenario must give the same result with the stand-in and with the real kubelet of every release. It asserts its
observations, so that all runs observe the same. Where releases differ, `fixture.release` contains the expectation. It
does not assert what a kubelet is free to choose. A scenario that needs a feature gate is skipped where it is off.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from kubelet import Release
from kubelet.devicemanager import Device
from tests.kubelet.both.claims_fixture import ClaimsFixture
from tests.kubelet.both.world import PodView

ScenarioFunction = Callable[[ClaimsFixture], Awaitable[None]]

NO_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices {}"


class Scenario(Struct, frozen=True):
    """A scenario, and the feature gate that it needs, if any."""

    run: ScenarioFunction
    gate: str = ""

    def reason_unsupported(self, release: Release) -> str:
        """The reason why a release cannot run the scenario; empty if it can."""
        return release.reason_unsupported(self.gate) if self.gate else ""


SCENARIOS: dict[str, Scenario] = {}


def both(run: ScenarioFunction) -> ScenarioFunction:
    """Run this scenario with both kubelets."""
    SCENARIOS[run.__name__.replace("_", "-")] = Scenario(run)
    return run


def both_with(gate: str) -> Callable[[ScenarioFunction], ScenarioFunction]:
    """Run this scenario with both kubelets if a feature gate is on."""

    def note(run: ScenarioFunction) -> ScenarioFunction:
        SCENARIOS[run.__name__.replace("_", "-")] = Scenario(run, gate)
        return run

    return note


def is_last(view: PodView) -> bool:
    """Return whether a deleted pod's status contains the result of its only container `c`."""
    container = view.containers["c"]
    return container.exit_code is not None and view.phase == ("Failed" if container.exit_code else "Succeeded")


def healthy(*ids: str) -> list[Device]:
    """Healthy devices."""
    return [Device(id_) for id_ in ids]


def unhealthy(*ids: str) -> list[Device]:
    """Unhealthy devices."""
    return [Device(id_, "Unhealthy") for id_ in ids]
