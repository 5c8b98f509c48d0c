"""The device plugin API, node side: one server for each resource, registration across kubelet restarts, allocation.

assignment -> units -> list -> kubelet;  request -> check -> lease -> answer
"""

from deviceplugin.errors import AllocationRefused, DevicePluginError
from deviceplugin.plugin import DevicePlugins, Paths
from deviceplugin.resource_plugin import ResourceStatus

__all__ = ["AllocationRefused", "DevicePluginError", "DevicePlugins", "Paths", "ResourceStatus"]
