"""Plugins for tests of a kubelet, or of what stands above one: they do as the test says."""

from kubelet.stubs.device_plugin import DevicePluginStub
from kubelet.stubs.dra_driver import DRAPluginStub, Prepare, claimed
from kubelet.stubs.scripted import Answer, Behaviour, Gate, PluginFault, answering, failing

__all__ = [
    "Answer",
    "Behaviour",
    "DRAPluginStub",
    "DevicePluginStub",
    "Gate",
    "PluginFault",
    "Prepare",
    "answering",
    "claimed",
    "failing",
]
