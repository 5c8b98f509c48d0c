"""Pods on a node: where the kubelet hears of them, and the life that it leads them through.

They are those of `resourceapi.objects.core`, whose status the kubelet writes.
"""

from kubelet.pods.builders import container, pod, stays
from kubelet.pods.manifests import PodFileError, decode_pod, for_admission, load_pods
from kubelet.pods.unknown_fields import unknown_fields

__all__ = ["PodFileError", "container", "decode_pod", "for_admission", "load_pods", "pod", "stays", "unknown_fields"]
