"""Conformance tests: run the command of a device plugin or a DRA driver against a stand-in kubelet."""

from kubelet.conformance.api_requests import ApiRequests
from kubelet.conformance.device_plugin import Conformance
from kubelet.conformance.dra_driver import NODE, DriverConformance
from kubelet.conformance.run import Check, Outcome, Run

__all__ = ["NODE", "ApiRequests", "Check", "Conformance", "DriverConformance", "Outcome", "Run"]
