"""Scripted plugins for tests of a kubelet, or of code that uses one.

The device plugin is in `kubelet.devicemanager`, because the kubelet's own `Stub` is built on it. Both plugins are based
on `kubelet.scripted_plugin`.
"""

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
