"""How dcgm-exporter finds the pods of a node's GPUs.

Source: dcgm-exporter 4.5 (internal/pkg/transformation/kubernetes.go: iterateGPUDevices, toDeviceToPod,
toDeviceToSharingPods; pkg/cmd/app.go: names and defaults of its variables). It also queries NVML for MIG instances.
"""

from collections.abc import Mapping, Sequence

from kubeletapi.podresources.v1 import api_pb2 as podresources

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-"


def pods_by_gpu(pods: Sequence[podresources.PodResources], env: Mapping[str, str]) -> dict[str, set[str]]:
    """The names of pods by GPU UUID, as an exporter with these variables finds them."""
    if env.get("DCGM_EXPORTER_KUBERNETES") != "true":
        return {}
    names = {GPU, *env.get("NVIDIA_RESOURCE_NAMES", "").split(",")}
    found: dict[str, set[str]] = {}
    for pod in pods:
        resources = [x for container in pod.containers for x in container.devices]
        known = [x for x in resources if x.resource_name in names or x.resource_name.startswith(MIG)]
        for gpu in {identity.partition("::")[0] for x in known for identity in x.device_ids}:
            others = found.get(gpu, set()) if env.get("KUBERNETES_VIRTUAL_GPUS") == "true" else set()
            found[gpu] = {*others, pod.name}  # without the variable, the last pod wins
    return found
