"""All scenarios, by name."""

from tests.kubelet.both import (
    admission,
    claims,
    claims_over_time,
    containers,
    drivers,
    health,
    metrics,
    node_fit,
    registration,
    restarts,
)
from tests.kubelet.both.scenario import SCENARIOS

__all__ = [
    "SCENARIOS",
    "admission",
    "claims",
    "claims_over_time",
    "containers",
    "drivers",
    "health",
    "metrics",
    "node_fit",
    "registration",
    "restarts",
]
