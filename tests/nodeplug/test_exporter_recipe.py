"""docs/recipes.md, "All GPUs for an exporter": a claim that sees what others have, and takes nothing from them."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from controlplane.apiserver import write_kubeconfig
from tests.controlplane.scheduler.kit import Json, device_class
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.machine import build_machine
from tests.nodeplug.cluster import ClusterStand, using
from tests.nodeplug.machine import Machine
from tests.userspace.driver_root import install

SECTION = (Path(__file__).parents[2] / "docs/recipes.md").read_text().partition("\n## All GPUs for an exporter\n")[2]
CONFIGURATION, OBJECTS = (
    list(yaml.safe_load_all(text)) for text in re.findall(r"(?s)```yaml\n(.*?)```", SECTION.partition("\n## ")[0])
)
GPUS = {"gpu-0000-82-00-0": 4, "gpu-0000-83-00-0": 5}  # with their minor numbers


@pytest.fixture
async def machine(tmp_path: Path, socket_dir: Path) -> AsyncIterator[Machine]:
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
    async with AsyncExitStack() as stack:
        stand = await stack.enter_async_context(ClusterStand(socket_dir))
        made = Machine(tmp_path, stand, host, socket_dir)
        write_kubeconfig(made.kubeconfig, stand.server.url, stand.server.token)
        stack.push_async_callback(made.end)
        yield made


async def test_an_exporter_sees_every_gpu_while_a_pod_has_one(machine: Machine) -> None:
    stand, node = machine.stand, machine.stand.node
    namespace, template, daemon_set = OBJECTS
    await machine.start(resources=CONFIGURATION[0]["resources"])
    await stand.create(device_class("gpu.nvidia.com", 'device.attributes["nodeplug.dev"].resource == "nvidia.com/gpu"'))
    await machine.until_published()
    await node.until(lambda: node.allocatable().get("nvidia.com/gpu") == 2, 30)
    program = using("program")
    program["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await stand.create(program)
    await stand.until_phase("program", "Running")

    labels = namespace["metadata"]["labels"]
    await stand.patch("Namespace", "default", {"metadata": {"labels": labels}})
    await stand.create(here(template), exporter(daemon_set))
    await stand.let_pass(1.0, "Pod", "exporter", "Running")
    edits = [x["containerEdits"] for spec in machine.specs() for x in spec["devices"]]
    nodes = {x["path"] for each in edits for x in each.get("deviceNodes", ())}
    assert {f"/dev/nvidia{minor}" for minor in GPUS.values()} <= nodes
    assert "/dev/nvidia3" not in nodes, "whose instances are offered, or nobody's"
    assert "/usr/local/nvidia" in {x["containerPath"] for each in edits for x in each.get("mounts", ())}
    assert node.allocatable()["nvidia.com/gpu"] == 2, "nobody is kept from a GPU"

    other = using("other")
    other["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await stand.create(other)
    await stand.until_phase("other", "Running")
    assert sorted(api for api, *_ in machine.leases()) == ["device-plugin", "device-plugin", "dra", "dra"]


def here(made: Json) -> Json:
    """An object in the namespace of the test's cluster."""
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
