"""All scenarios, by name."""

from tests.kubelet.both import admission, containers, registration
from tests.kubelet.both.scenario import SCENARIOS

__all__ = ["SCENARIOS", "admission", "containers", "registration"]
