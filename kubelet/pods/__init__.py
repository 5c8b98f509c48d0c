"""Pods on a node: what they are, where the kubelet hears of them, and the life that it leads them through."""

from kubelet.pods.objects import (
    Container,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodFileError,
    PodSpec,
    PodStatus,
    ResourceHealth,
    ResourceRequirements,
    ResourceStatus,
    container,
    decode_pod,
    device_request,
    load_pods,
    pod,
)

__all__ = [
    "Container",
    "ContainerStatus",
    "ObjectMeta",
    "Pod",
    "PodFileError",
    "PodSpec",
    "PodStatus",
    "ResourceHealth",
    "ResourceRequirements",
    "ResourceStatus",
    "container",
    "decode_pod",
    "device_request",
    "load_pods",
    "pod",
]
