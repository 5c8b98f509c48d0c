"""Presets against the devices that they are meant to find, and the attributes that a configuration may name."""

import pytest

from hostdevices import Host, scan
from hostdevices.attributes import ATTRIBUTES, STANDARD
from resources.assignment import assign
from resources.presets import PRESETS, preset
from resources.resource import Resource
from tests.hostdevices.machine import build_machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The machine that has every kind of device."""
    return build_machine(tmp_path_factory.mktemp("attributes") / "root").host


ON_THE_MACHINE = frozenset(
    """
    accel amd-gpu block camera cec dma-heap dsa gpio gpu hidraw i2c iio input intel-gpu kvm lirc loop mdev media mig nic
    nvme pps ptp qat rdma rtc serial sound spi sriov-vf tpm tun uio usb usb-serial vdpa vfio video
    watchdog
    """.split()  # noqa: SIM905 - forty names one below the other hide what they are for
)


def test_presets_find_their_devices(machine: Host) -> None:
    inventory = scan(machine)
    resources = {name: Resource(f"x/{name}", preset(name), dangerous=True) for name in PRESETS}
    found = {name for name, resource in resources.items() if assign(inventory, [resource]).devices[resource.name]}
    assert found >= ON_THE_MACHINE


def test_a_gpu_with_instances_is_not_offered_whole(machine: Host) -> None:
    resources = [Resource(f"x/{name}", preset(name)) for name in ("nvidia-gpu", "mig")]
    found = assign(scan(machine), resources).devices
    assert found["x/nvidia-gpu"] == ()
    assert [device.attributes["type"] for device in found["x/mig"]] == ["mig", "mig"]


def test_dangerous_presets_say_so_and_offer_nothing_unless_the_resource_does(machine: Host) -> None:
    inventory = scan(machine)
    dangerous = {name for name, entry in PRESETS.items() if entry.help.endswith("(dangerous)")}
    assert dangerous == {"block", "cuse", "loop", "loop-control", "nvme", "rtc", "uinput", "watchdog"}
    for name in dangerous:
        assert assign(inventory, [Resource("x/y", preset(name))]).devices == {"x/y": ()}
    for name in ON_THE_MACHINE - dangerous:
        assert assign(inventory, [Resource("x/y", preset(name))]).devices["x/y"], name


def test_a_configuration_knows_the_attributes_of_all_readers_and_of_paths() -> None:
    assert set(STANDARD.values()) <= ATTRIBUTES.keys()
    known = {
        name: ATTRIBUTES[name] for name in ("name", "sriov", "interface", "class", "speed", "firmware", "subsystem")
    }
    assert list(known.values()) == ["text", "text", "integer", "hexadecimal", "integer", "version", "text"]
