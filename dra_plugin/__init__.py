"""Dynamic Resource Allocation, node side: publishes ResourceSlices, prepares claims, reports health.

assignment -> offers -> ResourceSlices -> API server        claims -> leases -> CDI -> kubelet
"""

from dra_plugin.errors import DraPluginError
from dra_plugin.plugin import DraPlugin, DraStatus, DriverOptions
from dra_plugin.serving.kubelet_plugin import Folders

__all__ = ["DraPlugin", "DraPluginError", "DraStatus", "DriverOptions", "Folders"]
