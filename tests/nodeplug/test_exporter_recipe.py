"""docs/recipes.md, "All GPUs for an exporter": a claim with admin access, which takes no device from other holders."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import yaml

from grpcunix import Client, connect
from kubelet import Node
from kubeletapi.podresources.v1 import api_pb2 as podresources
from nodeplug.config import loads
from tests.controlplane.scheduler.kit import Json, device_class
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.machine import build_machine
from tests.nodeplug import dcgm
from tests.nodeplug.allocations import plugins_of
from tests.nodeplug.cluster import using
from tests.nodeplug.machine import Machine, in_cluster
from tests.userspace.driver_root import install

SECTION = (Path(__file__).parents[2] / "docs/recipes.md").read_text().partition("\n## All GPUs for an exporter\n")[2]
CONFIGURATION, OBJECTS = (
    list(yaml.safe_load_all(text)) for text in re.findall(r"(?s)```yaml\n(.*?)```", SECTION.partition("\n## ")[0])
)
LISTER = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]
GPUS = {"gpu-0000-82-00-0": 4, "gpu-0000-83-00-0": 5}  # with their minor numbers


@pytest.fixture
def host(tmp_path: Path) -> MadeUpHost:
    """Two whole GPUs, and one in MIG mode."""
    host = MadeUpHost(tmp_path / "host", "fuse")
    tree = build_machine(host.root)
    for number, minor in ((2, 4), (3, 5)):
        address = f"0000:8{number}:00.0"
        tree.pci(address, root="pci0000:80", vendor="10de", device="20b5", pci_class="030200", driver="nvidia")
        facts = f"Model: \t A100\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {minor}"
        tree.file(f"/proc/driver/nvidia/gpus/{address}/information", facts)
        tree.node(f"/dev/nvidia{minor}", f"195:{minor}")
    install(tree.root, "535.104.05")
    return host


@pytest.fixture
async def machine(host: MadeUpHost, tmp_path: Path, socket_dir: Path) -> AsyncIterator[Machine]:
    async with in_cluster(tmp_path, host, socket_dir) as made:
        yield made


async def test_exporter_has_every_gpu_while_pods_use_them(machine: Machine) -> None:
    cluster, node = machine.cluster, machine.cluster.node
    namespace, template, daemon_set = OBJECTS
    await machine.start(resources=CONFIGURATION[0]["resources"])
    await cluster.create(
        device_class("gpu.nvidia.com", 'device.attributes["nodeplug.dev"].resource == "nvidia.com/gpu"')
    )
    await machine.until_published()
    await node.until(lambda: node.allocatable().get("nvidia.com/gpu") == 2, 30)
    program = using("program")
    program["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await cluster.create(program)
    await cluster.until_phase("program", "Running")

    labels = namespace["metadata"]["labels"]
    await cluster.patch("Namespace", "default", {"metadata": {"labels": labels}})
    await cluster.create(in_default_namespace(template), exporter(daemon_set))
    await cluster.advance_clock(1.0, "Pod", "exporter", "Running")
    edits = [x["containerEdits"] for spec in machine.specs() for x in spec["devices"]]
    nodes = {x["path"] for each in edits for x in each.get("deviceNodes", ())}
    assert {f"/dev/nvidia{minor}" for minor in GPUS.values()} <= nodes
    assert "/dev/nvidia3" not in nodes, "whose instances are offered, or nobody's"
    assert "/usr/local/nvidia" in {x["containerPath"] for each in edits for x in each.get("mounts", ())}
    assert node.allocatable()["nvidia.com/gpu"] == 2, "nobody is kept from a GPU"

    other = using("other")
    other["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await cluster.create(other)
    await cluster.until_phase("other", "Running")
    assert sorted(api for api, *_ in machine.leases()) == ["device-plugin", "device-plugin", "dra", "dra"]
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    found = dcgm.pods_by_gpu(await pods_of(node), {x["name"]: x["value"] for x in container["env"]})
    assert found.keys() == {"GPU-2", "GPU-3"}
    assert sorted(name for names in found.values() for name in names) == ["other", "program"]


async def test_exporter_finds_renamed_and_shared_gpus_with_its_variables(
    host: MadeUpHost, tmp_path: Path, socket_dir: Path
) -> None:
    """The variables of the recipe's table, one after the other."""
    shared = {**CONFIGURATION[0]["resources"][0], "name": "example.com/gpu", "shares": 4, "preferred": "packed"}
    resources = loads(json.dumps({"resources": [shared]}).encode()).resources
    env = {"DCGM_EXPORTER_KUBERNETES": "true"}
    async with plugins_of(host.host, resources, tmp_path, socket_dir) as offering:
        containers = [await offering.allocate(name, "example.com/gpu") for name in ("first", "second")]
        ((gpu,),) = {tuple(i.partition("::")[0] for i in each.ids) for each in containers}
        pods = await pods_of(offering.node)
    assert dcgm.pods_by_gpu(pods, env) == {}
    env["NVIDIA_RESOURCE_NAMES"] = "example.com/gpu"
    assert len(dcgm.pods_by_gpu(pods, env)[gpu]) == 1
    env["KUBERNETES_VIRTUAL_GPUS"] = "true"
    assert dcgm.pods_by_gpu(pods, env) == {gpu: {"first", "second"}}
    assert set(env) - {"DCGM_EXPORTER_KUBERNETES"} <= set(re.findall(r"`([A-Z_]+)", SECTION))


async def pods_of(node: Node) -> Sequence[podresources.PodResources]:
    """The pods' resources according to the kubelet."""
    async with connect(node.pod_resources_socket) as channel:
        listed: podresources.ListPodResourcesResponse = await Client(channel, LISTER).call(
            "List", podresources.ListPodResourcesRequest(), timeout=10
        )
    return listed.pod_resources


def in_default_namespace(made: Json) -> Json:
    """An object, moved to the namespace of the test's cluster."""
    return {**made, "metadata": {**made["metadata"], "namespace": "default"}}


def exporter(daemon_set: Json) -> Json:
    """The pod of a DaemonSet."""
    spec = daemon_set["spec"]["template"]["spec"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "exporter", "namespace": "default"},
        "spec": {k: v for k, v in spec.items() if k != "volumes"}
        | {"containers": [{k: v for k, v in x.items() if k != "volumeMounts"} for x in spec["containers"]]},
    }
