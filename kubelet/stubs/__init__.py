"""Plugins for tests of a kubelet, or of what stands above one: they do as the test says.

The device plugin's lies in `kubelet.devicemanager`, which has the kubelet's own `Stub` from it; both plugins stand on
`kubelet.scripted_plugin`.
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
