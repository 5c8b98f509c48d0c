"""The kubelet's DRA manager: claims are prepared by drivers' plugins before a pod starts, and unprepared after it."""

from kubelet.dramanager.cluster import ApiCluster, Cluster, ClusterError, MemoryCluster

__all__ = ["ApiCluster", "Cluster", "ClusterError", "MemoryCluster"]
