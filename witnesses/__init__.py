"""Who can say who holds what: the kubelet's pod-resources API, its state files, the kernel, the API server.

What their words mean stands in checkpoint/holdings.py.
"""

from witnesses.kubelet_files import KubeletFiles
from witnesses.node import NodeWitnesses
from witnesses.pod_resources import PodResources

__all__ = ["KubeletFiles", "NodeWitnesses", "PodResources"]
