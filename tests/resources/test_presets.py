"""Presets select the intended devices; the attributes that a configuration can name."""

from pathlib import Path

import pytest

from hostdevices import Host, scan
from hostdevices.attributes import ATTRIBUTES, STANDARD
from resources.assignment import assign
from resources.presets import PRESETS, preset
from resources.resource import Resource
from tests.hostdevices.machine import build_machine
from tests.hostdevices.tree import Tree


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The machine with a device of every kind."""
    return build_machine(tmp_path_factory.mktemp("attributes") / "root").host


FOUND_ON_MACHINE = frozenset(
    """
    accel amd-gpu block camera cec dma-heap dsa gpio gpu hidraw i2c iio input intel-gpu kvm lirc loop mdev media mig nic
    nvme pps ptp qat rdma rtc serial sound spi sriov-vf tpm tun uio usb usb-serial vdpa vfio video
    watchdog
    """.split()  # noqa: SIM905 - forty names one below the other hide what they are for
)


def test_every_preset_selects_its_devices_on_the_machine(machine: Host) -> None:
    inventory = scan(machine)
    resources = {name: Resource(f"x/{name}", preset(name), dangerous=True) for name in PRESETS}
    found = {name for name, resource in resources.items() if assign(inventory, [resource]).devices[resource.name]}
    assert found >= FOUND_ON_MACHINE


def test_gpu_with_mig_instances_is_not_offered(machine: Host) -> None:
    resources = [Resource(f"x/{name}", preset(name)) for name in ("nvidia-gpu", "mig")]
    found = assign(scan(machine), resources).devices
    assert found["x/nvidia-gpu"] == ()
    assert [device.attributes["type"] for device in found["x/mig"]] == ["mig", "mig"]


def test_nvidia_gpu_preset_requires_the_nvidia_driver(tmp_path: Path) -> None:
    """A node without NVIDIA's driver has nouveau, and CUDA would not work."""
    tree = Tree(tmp_path)
    card = tree.pci("0000:01:00.0", vendor="10de", driver="nouveau")
    for name in ("card0", "renderD128"):
        tree.child(card, f"drm/{name}", group="class/drm", node=f"dri/{name}")
    found = assign(scan(tree.host), [Resource("x/cuda", preset("nvidia-gpu")), Resource("x/any", preset("gpu"))])
    assert [len(x) for x in found.devices.values()] == [0, 1]


RASPBERRY_PI = (  # github.com/ayufan/camera-streamer/issues/3: v4l2-ctl --list-devices, sensor and HEVC decoder besides
    ("platform/soc/fe801000.csi", "unicam", ("video0", "video1", "v4l-subdev0")),
    *(
        (f"platform/soc/fe00b840.mailbox/bcm2835-codec.{number}", "bcm2835-codec", (f"video{number}",))
        for number in (10, 11, 12, 18, 31)
    ),
    ("platform/soc/fe00b840.mailbox/bcm2835-isp", "bcm2835-isp", tuple(f"video{x}" for x in (13, 14, 15, 16))),
    ("platform/soc/fe00b840.mailbox/bcm2835-isp.1", "bcm2835-isp", tuple(f"video{x}" for x in (20, 21, 22, 23))),
    ("platform/scb/feb00000.hevc-decoder", "rpivid", ("video19",)),
    ("platform/soc/fe804000.i2c/i2c-1/1-0010", "imx219", ("v4l-subdev1",)),
)


def test_camera_preset_selects_no_codecs(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for place, driver, names in RASPBERRY_PI:
        parent = tree.device(f"/sys/devices/{place}", driver=f"platform/{driver}")
        for index, name in enumerate(names):
            tree.child(parent, f"video4linux/{name}", group="class/video4linux", node=name, index=index)
    inventory = scan(tree.host)
    found = assign(inventory, [Resource("x/camera", preset("camera"))]).devices["x/camera"]
    assert [device.name for device in found] == ["video0"]
    (codec,) = (device for device in inventory.devices.values() if device.name == "video10")
    assert preset("camera").mismatch(codec) == "it decodes, encodes or converts images, and captures none"


def test_dangerous_presets_are_documented_and_need_the_option(machine: Host) -> None:
    inventory = scan(machine)
    dangerous = {name for name, entry in PRESETS.items() if entry.help.endswith("(dangerous)")}
    assert dangerous == {"block", "cuse", "loop", "loop-control", "nvme", "rtc", "tpm", "uinput", "watchdog"}
    for name in dangerous:
        assert assign(inventory, [Resource("x/y", preset(name))]).devices == {"x/y": ()}
    for name in FOUND_ON_MACHINE - dangerous:
        assert assign(inventory, [Resource("x/y", preset(name))]).devices["x/y"], name


def test_attribute_table_has_types_of_all_readers() -> None:
    assert set(STANDARD.values()) <= ATTRIBUTES.keys()
    known = {
        name: ATTRIBUTES[name] for name in ("name", "sriov", "interface", "class", "speed", "firmware", "subsystem")
    }
    assert list(known.values()) == ["text", "text", "integer", "hexadecimal", "integer", "version", "text"]
