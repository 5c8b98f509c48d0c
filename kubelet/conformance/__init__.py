"""Does a device plugin, or a DRA driver, behave? Runs of somebody's command against a stand-in kubelet."""

from kubelet.conformance.device_plugin import Conformance
from kubelet.conformance.dra_driver import NODE, DriverConformance
from kubelet.conformance.run import Check, Outcome, Run

__all__ = ["NODE", "Check", "Conformance", "DriverConformance", "Outcome", "Run"]
