"""docs/recipes.md on a machine with all devices: the devices of each recipe, and a pod's devices from the kubelet."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dra_plugin.publishing.device_class import device_class
from hostdevices import Host
from nodeplug.cli import main
from nodeplug.config import loads
from tests.hostdevices.machine import build_machine
from tests.nodeplug.allocations import plugins_of
from tests.userspace.driver_root import install

PAGE = (Path(__file__).parents[2] / "docs/recipes.md").read_text()
UVERBS = ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")
NVIDIA = ("/dev/nvidia-uvm", "/dev/nvidia4", "/dev/nvidiactl")
VFIO = ("/dev/vfio/42", "/dev/vfio/vfio")
UUID = "GPU-2b2c3d4e-0000-1111-2222-333344445555"
OFFERED: dict[str, dict[str, list[tuple[str, ...]]]] = {
    "NVIDIA GPUs with the container toolkit": {"example.com/gpu": [NVIDIA]},
    "NVIDIA GPUs without the toolkit": {"nvidia.com/gpu": [NVIDIA]},
    "A GPU shared through MPS": {"example.com/gpu": [NVIDIA]},
    "MIG instances": {
        "nvidia.com/mig": [
            tuple(f"/dev/nvidia{x}" for x in (f"-caps/nvidia-cap{a}", f"-caps/nvidia-cap{a + 1}", "-uvm", "3", "ctl"))
            for a in (12, 21)
        ]
    },
    "All GPUs for an exporter": {"nvidia.com/gpu": [NVIDIA]},
    "IMEX channels": {"nvidia.com/imex-channel": [("/dev/nvidia-caps-imex-channels/channel0",)]},
    "AMD GPUs": {"amd.com/gpu": [("/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd")]},
    "An Intel GPU for transcoding": {"example.com/transcoding": [("/dev/dri/renderD128",)]},
    "Intel QAT and DSA": {
        "qat.intel.com/cy": [("/dev/vfio/30", "/dev/vfio/vfio")],
        "dsa.intel.com/wq-user-shared": [("/dev/dsa/wq0.0",)],
    },
    "Gaudi accelerators": {"habana.ai/gaudi": [("/dev/accel/accel0", "/dev/accel/accel_controlD0")]},
    "A Zigbee stick": {"example.com/zigbee": [("/dev/zigbee",)]},
    "Coral accelerators": {
        "example.com/coral-usb": [("/dev/bus/usb/001/041",)],
        "example.com/coral-pcie": [("/dev/apex_0",)],
    },
    "SR-IOV with Multus": {"example.com/data": [()]},  # not the vDPA device: sriov-cni 2.10, LoadConf
    "DPDK": {"example.com/dpdk": [VFIO]},
    "RDMA": {"example.com/rdma": [UVERBS]},
    "A camera with its microphone": {
        "example.com/webcam": [
            ("/dev/snd/controlC1", "/dev/snd/pcmC1D0c", "/dev/snd/timer", "/dev/video0", "/dev/video1")
        ]
    },
    "Virtual machines in pods": {"example.com/kvm": [("/dev/kvm",)], "example.com/tun": [("/dev/net/tun",)]},
    "A card for a virtual machine of KubeVirt": {"example.com/card": [("/dev/vfio/41", "/dev/vfio/vfio")]},
    "Through claims, with a choice": {
        "example.com/accelerator": [
            ("/dev/dri/card0", "/dev/dri/renderD128"),
            NVIDIA,
            ("/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"),
        ]
    },
}

ENVIRONMENT = {
    "A GPU shared through MPS": ("CUDA_MPS_PIPE_DIRECTORY", {"/run/nvidia-mps/pipe"}),
    "Gaudi accelerators": ("HABANA_VISIBLE_MODULES", {"5"}),
    "SR-IOV with Multus": ("PCIDEVICE_EXAMPLE_COM_DATA", {"0000:3b:00.2"}),
    "DPDK": ("PCIDEVICE_EXAMPLE_COM_DPDK", {"0000:3b:00.4"}),
    "A card for a virtual machine of KubeVirt": ("PCI_RESOURCE_EXAMPLE_COM_CARD", {"0000:41:00.0"}),
}
IDS = {  # the ids by which the vendor's exporter finds the pod
    "NVIDIA GPUs with the container toolkit": [UUID],
    "All GPUs for an exporter": [UUID],
    "AMD GPUs": ["0000:c1:00.0"],  # device-metrics-exporter 1.5, pkg/exporter/scheduler/k8s.go: ListWorkloads
}
FOREIGN = {"NVIDIA GPUs with the container toolkit": f"nvidia.com/gpu={UUID}"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up machine with the recipes' other devices: a stick, Corals, a whole GPU, a function with vfio."""
    tree = build_machine(tmp_path_factory.mktemp("recipes"))
    controller = "/sys/devices/pci0000:00/0000:00:14.0"
    stick = tree.usb(controller, "1-5", vendor="10c4", product="ea60", serial="0001", interfaces=("ff",))
    port = tree.device(f"{stick}/1-5:1.0/ttyUSB1", driver="usb-serial/cp210x", port_number=0)
    tree.child(port, "tty/ttyUSB1", group="class/tty", node="ttyUSB1", numbers="188:1")
    tree.usb(controller, "1-6", vendor="1a6e", product="089a", interfaces=("ff",))
    coral = tree.pci("0000:05:00.0", vendor="1ac1", device="089a", pci_class="0880ff", driver="apex")
    tree.child(coral, "apex/apex_0", group="class/apex", node="apex_0", numbers="120:0")
    tree.pci("0000:82:00.0", root="pci0000:80", vendor="10de", device="20b5", pci_class="030200", driver="nvidia")
    tree.file(
        "/proc/driver/nvidia/gpus/0000:82:00.0/information", f"Model: \t A100\nGPU UUID: \t {UUID}\nDevice Minor: \t 4"
    )
    tree.node("/dev/nvidia4", "195:4")
    tree.node("/dev/vhost-net", "10:238")
    tree.node("/dev/nvidia-caps-imex-channels/channel0", "508:0")
    install(tree.root, "535.104.05")
    tree.file("/run/nvidia-mps/pipe/control", "")
    physical = tree.host.resolve("/sys/bus/pci/devices/0000:3b:00.0")
    assert physical is not None
    bound = tree.virtual_function(
        physical, "0000:3b:00.4", 2, vendor="15b3", device="101e", pci_class="020000", driver="vfio-pci"
    )
    tree.iommu_group(42, bound)
    tree.device("/sys/devices/virtual/vfio/42", group="class/vfio", node="vfio/42", numbers="240:0")
    return tree.root


def sections() -> dict[str, str]:
    found = (part.partition("\n") for part in PAGE.split("\n## ")[1:])
    return {heading: text for heading, _, text in found}


def test_every_recipe_has_a_case() -> None:
    assert list(sections()) == list(OFFERED)


@pytest.mark.parametrize("heading", OFFERED)
def test_recipe_offers_its_devices(heading: str, root: Path, tmp_path: Path) -> None:
    configuration, *objects = re.findall(r"(?s)```yaml\n(.*?)```", sections()[heading])
    file = tmp_path / "config.yaml"
    file.write_text(configuration)
    result = CliRunner().invoke(main, ["check", str(file), "--root", str(root), "-o", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["resources"]
    assert [device["unavailable"] for each in found for device in each["devices"] if device["unavailable"]] == []
    assert {
        each["name"]: sorted(sorted(node["containerPath"] for node in device["devnodes"]) for device in each["devices"])
        for each in found
    } == {name: sorted(sorted(nodes) for nodes in devices) for name, devices in OFFERED[heading].items()}
    named = {each["name"] for each in found}
    classes = {device_class(each, "nodeplug.dev").metadata.name for each in loads(file.read_bytes()).resources}
    for each in (manifest for text in objects for manifest in yaml.safe_load_all(text)):
        assert set(_values_of(each, "limits")) <= named
        assert set(_values_of(each, "deviceClassName")) <= classes


@pytest.mark.parametrize("heading", OFFERED)
async def test_pod_gets_the_devices_of_the_recipe(heading: str, root: Path, tmp_path: Path, socket_dir: Path) -> None:
    """One unit of each resource, from the stand-in kubelet."""
    (configuration, *_) = re.findall(r"(?s)```yaml\n(.*?)```", sections()[heading])
    config = loads(configuration.encode())
    async with plugins_of(Host(root), config.resources, tmp_path, socket_dir) as offering:
        for number, resource in enumerate(config.resources):
            container = await offering.allocate(f"pod-{number}", resource.name)
            besides = ("/dev/vhost-net", "/dev/net/tun") if resource.vhost_net else ()
            assert set(besides) <= set(container.nodes)
            assert tuple(x for x in container.nodes if x not in besides) in OFFERED[heading][resource.name]
            variable, values = ENVIRONMENT.get(heading, ("", {None}))
            assert container.env.get(variable) in values
            assert container.ids == IDS.get(heading, container.ids)
            assert FOREIGN.get(heading, "") in ("", *container.cdi)
            assert bool(resource.userspace) == ("/usr/local/nvidia" in container.mounts)


def _values_of(node: Any, key: str) -> list[str]:
    """Return the values below `key` at any depth: keys of a mapping, or a string."""
    if isinstance(node, list):
        return [name for each in node for name in _values_of(each, key)]
    if not isinstance(node, dict):
        return []
    here = node.get(key, ())
    return [*([here] if isinstance(here, str) else here), *(x for each in node.values() for x in _values_of(each, key))]
