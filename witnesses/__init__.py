"""The witnesses of device holders: the kubelet's pod-resources API, its state files, the kernel, the API server.

checkpoint/holdings.py decides what follows from their answers.
"""

from witnesses.kubelet_files import KubeletFiles
from witnesses.node import NodeWitnesses
from witnesses.pod_resources import PodResources

__all__ = ["KubeletFiles", "NodeWitnesses", "PodResources"]
