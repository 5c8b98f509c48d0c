"""The device plugin API, node side: a server per resource, registration through the kubelet's restarts, allocation.

assignment -> units -> list -> kubelet;  request -> check -> lease -> answer
"""

from deviceplugin.errors import AllocationRefused, DevicePluginError
from deviceplugin.plugin import DevicePlugins, Paths
from deviceplugin.resource_plugin import ResourceStatus

__all__ = ["AllocationRefused", "DevicePluginError", "DevicePlugins", "Paths", "ResourceStatus"]
