"""The kubelet's DRA manager: claims are prepared by drivers' plugins before a pod starts, and unprepared after it."""

from kubelet.dramanager.cluster import ApiCluster, Cluster, ClusterError, MemoryCluster, allocated_claim
from kubelet.dramanager.manager import DRAManager

__all__ = ["ApiCluster", "Cluster", "ClusterError", "DRAManager", "MemoryCluster", "allocated_claim"]
