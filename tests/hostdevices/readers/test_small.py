"""Serial ports, sound cards, and the classes of small devices."""

import pytest

from hostdevices import Device, Inventory, scan
from hostdevices.readers.tty import read as read_ttys
from resources.danger import danger_reason
from tests.hostdevices.machine import sound
from tests.hostdevices.tree import Tree


def paths(device: Device) -> list[str]:
    return [node.path for node in device.devnodes]


def test_serial_ports_without_hardware_are_omitted(inventory: Inventory) -> None:
    # ttyS1 is an empty slot of the 8250 driver; tty1 is a virtual console.
    assert {x.name for x in inventory.devices.values() if x.kind == "tty"} == {"ttyS0", "ttyUSB0"}
    assert inventory.devices["tty-ttys0"].attributes.items() >= {"bus": "platform", "driver": "serial"}.items()


def test_console_port_has_console_attribute(tree: Tree) -> None:
    uart = tree.device("/sys/devices/pnp0/00:05", driver="pnp/serial")
    base = tree.device(f"{uart}/00:05:0", group="bus/serial-base/devices", driver="serial-base/ctrl")
    port = tree.device(f"{base}/00:05:0.0", group="bus/serial-base/devices", driver="serial-base/port")
    tree.child(port, "tty/ttyS0", group="class/tty", node="ttyS0", numbers="4:64", type=4)
    tree.device("/sys/devices/virtual/tty/console", group="class/tty", active="tty0 ttyS0")
    (device,) = (x for x in read_ttys(tree.host) if isinstance(x, Device))
    assert device.attributes == {"name": "ttyS0", "bus": "platform", "driver": "serial", "console": True}
    assert danger_reason(device) == "it gives access to the node's console"


def test_ports_of_one_serial_card_have_different_ids(tree: Tree) -> None:
    card = tree.pci("0000:05:00.0", driver="serial")
    for number in (9, 10):
        tree.child(card, f"tty/ttyS{number}", group="class/tty", node=f"ttyS{number}", type=4)
    assert {device.name: device.id for device in read_ttys(tree.host) if isinstance(device, Device)} == {
        "ttyS9": "tty-0000-05-00-0",
        "ttyS10": "tty-0000-05-00-0-1",
    }


def test_sound_card_has_all_device_nodes(inventory: Inventory) -> None:
    card = inventory.devices["sound-0000-00-1f-3"]
    assert paths(card) == [
        "/dev/snd/controlC0",
        "/dev/snd/hwC0D0",
        "/dev/snd/pcmC0D0c",
        "/dev/snd/pcmC0D0p",
        "/dev/snd/timer",
    ]
    assert (
        card.attributes.items() >= {"card": "PCH", "capture": True, "playback": True, "driver": "snd_hda_intel"}.items()
    )


def test_sound_card_id_contains_no_card_number(tree: Tree) -> None:
    parent = tree.pci("0000:00:1f.3")
    sound(tree, parent, 3, "PCH", ("controlC3", "pcmC3D0c"))
    (card,) = (x for x in scan(tree.host).devices.values() if x.kind == "sound")
    assert (card.id, card.name) == ("sound-0000-00-1f-3", "card3")


def test_camera_nodes_have_their_index(inventory: Inventory) -> None:
    capture, metadata = (x for x in inventory.devices.values() if x.kind == "video")
    assert (paths(capture), capture.attributes["index"]) == (["/dev/video0"], 0)
    assert (paths(metadata), metadata.attributes["index"]) == (["/dev/video1"], 1)
    assert metadata.id == f"{capture.id}-index1"
    assert capture.attributes["model"] == "HD Pro Webcam C920"


def test_parts_of_a_webcam_have_its_usb_device_as_parent(inventory: Inventory) -> None:
    webcam = "usb-046d-082d-0000-00-14-0-0-3"
    assert {x.kind for x in inventory.devices.values() if webcam in x.parents} == {"video", "media", "sound"}


@pytest.mark.parametrize(
    ("identity", "node", "attributes"),
    [
        ("hidraw-1050-0120-0000-00-14-0-0-4-if0", "hidraw5", {"vendor": "1050", "product": "0120", "bus": "usb"}),
        ("input-serio0", "input/event3", {"model": "AT Translated Set 2 keyboard", "phys": "isa0060/serio0/input0"}),
        ("i2c-fe804000-i2c", "i2c-1", {"model": "bcm2835 (i2c@fe804000)"}),
        ("spi-fe204000-spi-cs1", "spidev0.1", {"model": "spi:spidev"}),
        ("gpio-fe200000-gpio", "gpiochip0", {"model": "pinctrl-bcm2711"}),
        ("iio-adc", "iio:device0", {"model": "mcp3008"}),
        ("ptp-0000-00-1f-6", "ptp0", {"model": "e1000e", "vendor": "8086"}),
        ("pps-ktimer", "pps0", {"model": "ktimer", "bus": "virtual"}),
        ("dma-heap-system", "dma_heap/system", {"bus": "virtual"}),
        ("rtc-00-03", "rtc0", {"model": "rtc_cmos 00:03"}),
        ("uio-0000-00-1f-3", "uio0", {"model": "uio_pci_generic"}),
        ("misc-kvm", "kvm", {"name": "kvm", "bus": "virtual"}),
    ],
)
def test_small_device_has_node_and_attributes(
    identity: str, node: str, attributes: dict[str, str], inventory: Inventory
) -> None:
    device = inventory.devices[identity]
    assert paths(device) == [f"/dev/{node}"]
    assert device.attributes.items() >= attributes.items()


@pytest.mark.parametrize("end", ["\n", "\u2028", "\x85", "\r"])
def test_line_break_in_hid_name_forges_no_property(end: str, tree: Tree) -> None:
    stick = tree.usb(tree.pci("0000:00:14.0"), "1-2", interfaces=("03",))
    device = tree.device(f"{stick}/1-2:1.0/0003:1A86:7523.0001")
    forged = f"key{end}HID_ID=0003:00001050:00000407{end}HID_PHYS=usb-2/input0"
    lines = ("HID_ID=0003:00001A86:00007523", f"HID_NAME={forged}", "HID_PHYS=usb-1/input0", f"HID_UNIQ={forged}")
    tree.file(f"{device}/uevent", "\n".join(lines))
    tree.child(device, "hidraw/hidraw0", group="class/hidraw", node="hidraw0")
    (hidraw,) = (x for x in scan(tree.host).devices.values() if x.kind == "hidraw")
    assert (hidraw.attributes["vendor"], hidraw.attributes["product"]) == ("1a86", "7523")
    # if the forged name contains a line of its own, the kernel's line cannot be recognized
    assert hidraw.attributes.get("phys") == (None if end == "\n" else "usb-1/input0")


def test_virtual_keyboard_id_contains_its_unique_name(tree: Tree) -> None:
    for number, unique in ((7, "aa:bb:cc"), (9, "dd:ee:ff")):
        device = tree.device(f"/sys/devices/virtual/misc/uhid/input/input{number}", name="Remote", uniq=unique)
        tree.child(device, f"event{number}", group="class/input", node=f"input/event{number}")
    assert {x.name: x.id for x in scan(tree.host).devices.values()} == {
        "event7": "input-aa-bb-cc",
        "event9": "input-dd-ee-ff",
    }


def test_tpm_has_resource_manager_node(inventory: Inventory) -> None:
    (tpm,) = (x for x in inventory.devices.values() if x.kind == "tpm")
    assert paths(tpm) == ["/dev/tpm0", "/dev/tpmrm0"]
    assert tpm.attributes["version"] == 2


def test_device_whose_node_has_other_numbers_is_omitted(tree: Tree) -> None:
    tree.device("/sys/devices/virtual/misc/kvm", group="class/misc", node="kvm", numbers="10:232")
    assert "misc-kvm" in scan(tree.host).devices
    tree.node("/dev/kvm", "10:229")
    assert "misc-kvm" not in scan(tree.host).devices


def test_devname_out_of_dev_is_ignored(tree: Tree) -> None:
    tree.device(
        "/sys/devices/virtual/misc/x", group="class/misc", node="kvm", numbers="10:232", uevent={"DEVNAME": "../kvm"}
    )
    tree.node("/kvm", "10:232")
    assert not scan(tree.host).devices


@pytest.mark.parametrize("is_first_present", [True, False])
def test_paired_device_ids_do_not_depend_on_other_paired_devices(tree: Tree, is_first_present: bool) -> None:
    """A mouse that is switched off disappears; the keyboard at the same receiver must not get its id."""
    stick = tree.usb(
        tree.pci("0000:00:14.0", pci_class="0c0330"), "1-2", vendor="046d", product="c52b", interfaces=("03",)
    )
    receiver = tree.device(f"{stick}/1-2:1.0/0003:046D:C52B.0003", group="bus/hid/devices")
    tree.child(receiver, "hidraw/hidraw0", group="class/hidraw", node="hidraw0")
    paired = [("4002", "a1-b2", 1)] * is_first_present + [("4003", "c3-d4", 2), ("4003", "e5-f6", 3)]
    for product, unique, number in paired:
        facts = {"HID_ID": f"0003:0000046D:0000{product}", "HID_NAME": product, "HID_UNIQ": unique}
        hid = tree.device(f"{receiver}/0003:046D:{product}.000{number + 3}", group="bus/hid/devices", uevent=facts)
        tree.child(hid, f"hidraw/hidraw{number}", group="class/hidraw", node=f"hidraw{number}")
        pointer = tree.device(f"{hid}/input/input{number}", group="class/input", name=product)
        tree.child(pointer, f"event{number}", group="class/input", node=f"input/event{number}")
    found = {x.id: x.name for x in scan(tree.host).devices.values() if x.kind in ("hidraw", "input")}
    place = "046d-c52b-0000-00-14-0-0-2-if0"
    first = {f"hidraw-{place}-4002-a1-b2": "hidraw1", f"input-{place}-4002-a1-b2": "event1"}
    assert found == {
        f"hidraw-{place}": "hidraw0",
        f"hidraw-{place}-4003-c3-d4": "hidraw2",
        f"hidraw-{place}-4003-e5-f6": "hidraw3",
        f"input-{place}-4003-c3-d4": "event2",
        f"input-{place}-4003-e5-f6": "event3",
        **(first if is_first_present else {}),
    }
