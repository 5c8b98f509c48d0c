"""A stand-in kubelet for devices: run and test plugins in any language against it, without Kubernetes.

It serves the sockets of a real kubelet, and never imports the node's side. `Node` combines its parts: the device
manager, the DRA manager, the plugin watcher, pod resources and the topology manager.
"""

from kubelet.clock import Clock, FakeClock, SystemClock
from kubelet.dramanager import ApiCluster, Cluster, ClusterError, MemoryCluster, allocated_claim
from kubelet.errors import AllocationError, ClaimError, KubeletError, NodeError, RegistrationError
from kubelet.events import Event
from kubelet.node import Node
from kubelet.pods import PodFileError, container, decode_pod, load_pods, pod
from kubelet.release import DEFAULT_VERSION, RELEASES, Release, Version
from kubelet.rpc import Timeouts
from resourceapi.objects.core import Container, Pod, PodStatus

__all__ = [
    "DEFAULT_VERSION",
    "RELEASES",
    "AllocationError",
    "ApiCluster",
    "ClaimError",
    "Clock",
    "Cluster",
    "ClusterError",
    "Container",
    "Event",
    "FakeClock",
    "KubeletError",
    "MemoryCluster",
    "Node",
    "NodeError",
    "Pod",
    "PodFileError",
    "PodStatus",
    "RegistrationError",
    "Release",
    "SystemClock",
    "Timeouts",
    "Version",
    "allocated_claim",
    "container",
    "decode_pod",
    "load_pods",
    "pod",
]
