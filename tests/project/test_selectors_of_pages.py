"""CEL expressions on pages, evaluated on the published devices of a machine with all devices."""

import re
from pathlib import Path

import pytest
import yaml

from hostdevices import Host, scan
from nodeplug.config import loads
from resourceapi.cel import CelEvalError, DeviceView, compile_selector, device_environment
from resources.assignment import assign
from tests.dra_plugin.offering import DRIVER, offering, published
from tests.hostdevices.machine import build_machine

DOCS = Path(__file__).parents[2] / "docs"
CHOICE = (DOCS / "recipes.md").read_text().partition("\n## Through claims, with a choice\n")[2].partition("\n## ")[0]
OTHERS = (
    (DOCS / "migration.md")
    .read_text()
    .partition("\n## Claims that other DRA drivers served\n")[2]
    .partition("\n## ")[0]
)
ENVIRONMENT = device_environment(stored=False, consumable_capacity=False, list_type_attributes=False)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Host:
    tree = build_machine(tmp_path_factory.mktemp("selectors"))
    tree.pci("0000:82:00.0", root="pci0000:80", vendor="10de", device="20b5", pci_class="030200", driver="nvidia")
    tree.file(
        "/proc/driver/nvidia/gpus/0000:82:00.0/information",
        "Model: \t NVIDIA A100-SXM4-40GB\nGPU UUID: \t GPU-2b2c3d4e-0000-1111-2222-333344445555\nDevice Minor: \t 4",
    )
    tree.node("/dev/nvidia4", "195:4")
    return tree.host


def views(host: Host, configuration: str) -> dict[str, DeviceView]:
    """Return the devices of the page's resources, as selectors see them."""
    resources = loads(configuration.encode()).resources
    shown = published(offering(resources, assign(scan(host), resources).devices))
    return {name: DeviceView(DRIVER, x.attributes, x.capacity) for name, x in shown.items()}


def matching(expression: str, known: dict[str, DeviceView]) -> list[str]:
    """Return the matching devices. An expression that fails for one device would block the claim for all."""
    compiled = compile_selector(expression, ENVIRONMENT)
    return [name for name, view in known.items() if compiled.matches(view)]


def test_selector_finds_large_gpus_among_devices_without_memory(machine: Host) -> None:
    configuration, claim = re.findall(r"(?s)```yaml\n(.*?)```", CHOICE)
    (request,) = yaml.safe_load(claim)["spec"]["spec"]["devices"]["requests"]
    (large,) = (each["cel"]["expression"] for each in request["exactly"]["selectors"])
    known = views(machine, configuration)
    assert len(known) == 3
    assert matching(large, known) == ["gpu-0000-c1-00-0"]
    assert len(matching(large.replace("32Gi", "8Gi"), known)) == 2
    with pytest.raises(CelEvalError, match="no such key: memory"):
        matching(large.partition("&& ")[2], known)


@pytest.mark.parametrize(
    ("expression", "devices"),
    [  # as in the documents of NVIDIA's driver, DRANET and the SR-IOV driver
        ("device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')", 1),
        ("device.attributes['gpu.nvidia.com'].type == 'gpu'", 1),
        ("device.attributes['gpu.nvidia.com'].uuid.startsWith('GPU-')", 1),
        ('device.attributes["dra.net"].ifName.startsWith("e") && device.attributes["dra.net"].virtual == false', 2),
        ('device.attributes["dra.net"]["numaNode"] == 0', 2),
        ('device.attributes["dra.net"].numaNode <= 1', 2),
        ('device.attributes["sriovnetwork.k8snetworkplumbingwg.io"].pciAddress.endsWith(":00.0")', 1),
    ],
)
def test_selectors_for_other_drivers_match_the_same_devices(expression: str, devices: int, machine: Host) -> None:
    (configuration,) = re.findall(r"(?s)```yaml\n(.*?)```", OTHERS)
    gpu, nic = configuration.split("  - name: example.com/nic")
    only = gpu if "nvidia" in expression else f"resources:\n  - name: example.com/nic{nic}"
    assert len(matching(expression, views(machine, only))) == devices
