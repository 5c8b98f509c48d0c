"""Plugins for tests of a kubelet, or of what stands above one: they do as the test says."""

from kubelet.devicemanager.stub import DevicePluginStub
from kubelet.scripted_plugin import Behaviour, Gate, PluginFault, StubReply, answering, failing
from kubelet.stubs.dra_driver import DRAPluginStub, Prepare, claimed

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
