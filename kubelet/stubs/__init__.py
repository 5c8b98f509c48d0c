"""Plugins for tests of a kubelet, or of what stands above one: they do as the test says."""

from kubelet.stubs.device_plugin import DevicePluginStub
from kubelet.stubs.dra_driver import DRAPluginStub, Prepare, claimed
from kubelet.stubs.scripted import Behaviour, Gate, PluginFault, StubReply, answering, failing

__all__ = [
    "Behaviour",
    "DRAPluginStub",
    "DevicePluginStub",
    "Gate",
    "PluginFault",
    "Prepare",
    "StubReply",
    "answering",
    "claimed",
    "failing",
]
