"""The scheduler's structured allocator: the devices that a node can provide for claims, as Kubernetes decides it."""

from controlplane.structured.allocator import Allocator, Stats, gather_pools, new_allocator
from controlplane.structured.errors import AllocationAborted, AllocationError, Cancelled, ClassNotFound, NodeError
from controlplane.structured.features import Features
from controlplane.structured.identity import DeviceID, PoolID, SharedDeviceID
from controlplane.structured.index import SliceIndex
from controlplane.structured.listers import ClaimLister, ClassLister, DeviceClasses, SliceLister
from controlplane.structured.node_selector import NodeSelectorError, is_for_node
from controlplane.structured.pools import Pool
from controlplane.structured.state import AllocatedState
from controlplane.structured.tracker import Tracker, patched, selects

__all__ = [
    "AllocatedState",
    "AllocationAborted",
    "AllocationError",
    "Allocator",
    "Cancelled",
    "ClaimLister",
    "ClassLister",
    "ClassNotFound",
    "DeviceClasses",
    "DeviceID",
    "Features",
    "NodeError",
    "NodeSelectorError",
    "Pool",
    "PoolID",
    "SharedDeviceID",
    "SliceIndex",
    "SliceLister",
    "Stats",
    "Tracker",
    "gather_pools",
    "is_for_node",
    "new_allocator",
    "patched",
    "selects",
]
