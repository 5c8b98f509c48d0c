"""The kubelet's DRA manager: drivers' plugins prepare claims before a pod starts, and unprepare them after it ended."""

from kubelet.dramanager.cluster import ApiCluster, Cluster, ClusterError, MemoryCluster, allocated_claim
from kubelet.dramanager.manager import DRAManager

__all__ = ["ApiCluster", "Cluster", "ClusterError", "DRAManager", "MemoryCluster", "allocated_claim"]
