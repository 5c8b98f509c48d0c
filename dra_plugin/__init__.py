"""Dynamic Resource Allocation, node side: ResourceSlices out, claims prepared, health told.

assignment -> offers -> ResourceSlices -> API server        claims -> leases -> CDI -> kubelet
"""

from dra_plugin.errors import DraPluginError
from dra_plugin.kubelet_plugin import Folders
from dra_plugin.plugin import DraPlugin, DraStatus, Place

__all__ = ["DraPlugin", "DraPluginError", "DraStatus", "Folders", "Place"]
