"""Data from a kubelet: its list of pods, the Allocate answers that it stores, and the cgroups of its pods."""

import functools
from random import Random

from google.protobuf.message import DecodeError

from deviceplugin import allocated_devices, stored_response
from deviceplugin.response import env_name
from deviceplugin.stored_response import StoredResponse
from hostdevices import Device, Devnode, Host
from hostdevices.pod_cgroups import running_pods
from hostdevices.recording import Entry, Recording
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.fuzz.mutation import mutated
from witnesses.pod_resources import listed_in

_RESOURCE = "example.com/gpu"
_DEVICE = Device("gpu-0", "gpu", "x", devnodes=(Devnode("/dev/dri/card0", "c", 226, 0),))
_CGROUPS = "/sys/fs/cgroup"
_UID = "2c48913c-b29f-11e7-9350-020968147796"
_FOLDERS = (
    f"kubepods/burstable/pod{_UID}/3f2a9c",
    f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{_UID.replace('-', '_')}.slice",
    f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{_UID.replace('-', '_')}.slice/cri.scope",
    "system.slice/a.service",
)
_NAMES = (b"pod", b"-pod", b".slice", b"/", b"_", b"kubepods")


def pod_resources(data: bytes) -> str:
    """A list of pods: the holders of our units and claimed devices, or an invalid list."""
    try:
        answer = podresources.ListPodResourcesResponse.FromString(data)
    except DecodeError:
        return "no list"
    found = listed_in(answer, lambda name: name.startswith("example.com/"), "nodeplug.dev", knows_its_pods=True)
    assert all(holder.startswith("pod/") for holder in found.units.values())
    assert all(found.claims.values())
    return "held" if found.units or found.claims else "nothing held"


@functools.cache
def lists() -> tuple[bytes, ...]:
    """Return lists in a kubelet's format."""
    resource = podresources.ContainerDevices(resource_name=_RESOURCE, device_ids=["gpu-0", "gpu-1"])
    device = podresources.ClaimResource(driver_name="nodeplug.dev", pool_name="n", device_name="gpu-2", share_id="s")
    claim = podresources.DynamicResource(claim_name="c", claim_namespace="default", claim_resources=[device])
    container = podresources.ContainerResources(name="c", devices=[resource], dynamic_resources=[claim])
    pod = podresources.PodResources(name="p", namespace="default", containers=[container])
    return podresources.ListPodResourcesResponse(pod_resources=[pod, pod]).SerializeToString(), b""


def stored_answers(data: bytes) -> str:
    """An answer to Allocate that a kubelet kept: which device a unit was then, and where its nodes were, or nothing."""
    found = StoredResponse(data, _RESOURCE)
    device = found.device_of("gpu-0")
    owners = stored_response.owners(found.response, _RESOURCE)
    seen = found.with_container_paths(_DEVICE)
    assert seen.id == _DEVICE.id
    assert [node.path for node in seen.devnodes] == [node.path for node in _DEVICE.devnodes]
    return "a device" if device else "nodes" if owners else "nothing"


@functools.cache
def answers() -> tuple[bytes, ...]:
    """Return Allocate answers of earlier releases."""
    node = deviceplugin.DeviceSpec(container_path="/dev/gpu", host_path="/dev/dri/card0", permissions="rw")
    said = '[{"id":"gpu-0","members":["a","b"],"partOf":["c"]}]'
    plain = deviceplugin.ContainerAllocateResponse(
        envs={env_name(_RESOURCE): "gpu-0"}, devices=[node], annotations={allocated_devices.annotation(_RESOURCE): said}
    )
    named = deviceplugin.ContainerAllocateResponse(
        envs={env_name(_RESOURCE): "gpu-0,gpu-1"},
        cdi_devices=[deviceplugin.CDIDevice(name="example.com/gpu=gpu-0")] * 2,
    )
    return plain.SerializeToString(), named.SerializeToString()


def cgroups(seed: int) -> str:
    """Folders of pods with damaged names: pod UIDs, or ignored folders."""
    source = Random(seed)
    names = [source.choice(_FOLDERS) for _ in range(source.randrange(1, 6))]
    damaged = [mutated(source, [name.encode()], _NAMES).decode(errors="surrogateescape").strip("/") for name in names]
    paths = [f"{_CGROUPS}/{name}/x" for name in (*damaged, "kubepods/pod1")]
    entries = [Entry(path, "there") for path in paths if "\0" not in path and "//" not in path]
    if source.random() < 0.7:
        entries.append(Entry(f"{_CGROUPS}/cgroup.controllers", "text", "cpu"))
    try:
        tree = Recording(entries)
    except ValueError:  # deeper than the limit
        return "no tree"
    found = running_pods(Host(tree=tree))
    return "not known" if found is None else "pods" if found - {"1"} else "one pod"
