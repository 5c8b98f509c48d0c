"""The table of attributes against what readers really give."""

from pathlib import Path

import pytest

from hostdevices import Host, Version, scan
from hostdevices.assignment import assign
from hostdevices.attributes import ATTRIBUTES
from hostdevices.presets import PRESETS, preset
from hostdevices.resource import Resource
from tests.hostdevices.machine import build_machine

TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "hexadecimal": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "version": (Version, str),  # a version that is none is a text
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The machine that has every kind of device."""
    return build_machine(tmp_path_factory.mktemp("attributes") / "root").host


@pytest.mark.parametrize("live", [False, True])
def test_readers_give_attributes_of_the_table_and_of_its_types(machine: Host, live: bool) -> None:
    for device in scan(Host(Path("/")) if live else machine).devices.values():
        for name, value in device.attributes.items():
            assert name in ATTRIBUTES, f"{name} of {device.id}"
            assert type(value) in TYPES[ATTRIBUTES[name]], f"{name} of {device.id}: {value!r}"


ON_THE_MACHINE = frozenset(
    """
    accel amd-gpu block camera cec dma-heap dsa gpio gpu hidraw i2c iio input intel-gpu kvm lirc loop mdev media mig nic
    nvme pps ptp qat rdma rtc serial sound spi sriov-vf tpm tun uio usb usb-serial vfio video watchdog
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
    assert dangerous == {"block", "loop", "loop-control", "nvme", "rtc", "uinput", "watchdog"}
    for name in dangerous:
        assert assign(inventory, [Resource("x/y", preset(name))]).devices == {"x/y": ()}
    for name in ON_THE_MACHINE - dangerous:
        assert assign(inventory, [Resource("x/y", preset(name))]).devices["x/y"], name
