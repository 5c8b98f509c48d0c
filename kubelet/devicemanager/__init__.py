"""The kubelet's device manager: device plugins register here, and containers get their devices from it."""

from kubelet.devicemanager.device import HEALTHY, UNHEALTHY, Device
from kubelet.devicemanager.manager import (
    ActivePodsFunc,
    Manager,
    ManagerStub,
    NodeInfo,
    PluginHandler,
    PodAdmitAttributes,
)
from kubelet.devicemanager.manager_impl import DEVICE_PLUGIN_PATH, KUBELET_SOCKET, ManagerImpl
from kubelet.devicemanager.options import DeviceRunContainerOptions
from kubelet.devicemanager.stub import Stub

__all__ = [
    "DEVICE_PLUGIN_PATH",
    "HEALTHY",
    "KUBELET_SOCKET",
    "UNHEALTHY",
    "ActivePodsFunc",
    "Device",
    "DeviceRunContainerOptions",
    "Manager",
    "ManagerImpl",
    "ManagerStub",
    "NodeInfo",
    "PluginHandler",
    "PodAdmitAttributes",
    "Stub",
]
