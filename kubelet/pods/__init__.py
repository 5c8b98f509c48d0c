"""Pods on a node: their sources, and their life cycle in the kubelet.

The pod type is that of `resourceapi.objects.core`; the kubelet writes its status.
"""

from kubelet.pods.builders import container, pod, stays
from kubelet.pods.manifests import PodFileError, decode_pod, for_admission, load_pods
from kubelet.pods.unknown_fields import unknown_fields

__all__ = ["PodFileError", "container", "decode_pod", "for_admission", "load_pods", "pod", "stays", "unknown_fields"]
