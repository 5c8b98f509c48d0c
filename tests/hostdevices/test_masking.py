"""Masks: identifying facts are replaced, equal values stay equal, and everything else is unchanged."""

import pytest

from hostdevices.masking import Mask
from hostdevices.recording import Entry

FOLDER = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2"


def masked(*entries: Entry) -> list[Entry]:
    return Mask(entries).apply(entries)


def text(path: str, content: str) -> Entry:
    return Entry(path, "text", content)


@pytest.mark.parametrize(
    ("path", "content", "instead"),
    [
        ("/sys/a/serial", "5CD1234XYZ\n", "0000000001\n"),
        ("/sys/a/address", "3c:ec:ef:12:34:56\n", "00:00:00:00:00:01\n"),
        ("/sys/a/address", "80:00:00:03:fe:80:00:00:00:00\n", "00:00:00:00:00:00:00:00:00:01\n"),
        ("/sys/a/node_guid", "0011:7500:0077:cfc8\n", "0000:0000:0000:0001\n"),
        ("/sys/a/gids/0", "fe80:0000:0000:0000:0011:7500:0077:cfc8\n", "0000:0000:0000:0000:0000:0000:0000:0001\n"),
        ("/sys/a/wwid", "naa.5000c500a1b2c3d4\n", "000.0000000000000001\n"),
        ("/sys/a/x", "GPU-9c1a0d5e-0f3c-4b7d-8a4e-1234567890ab\n", "GPU-00000000-0000-0000-0000-000000000001\n"),
        ("/sys/a/uevent", "DRIVER=x\nHID_UNIQ=12ab34cd\n", "DRIVER=x\nHID_UNIQ=00000001\n"),
        ("/sys/a/uevent", 'UNIQ="a1:b2:c3:d4:e5:f6"\n', 'UNIQ="00:00:00:00:00:01"\n'),
        ("/proc/net/ipv6_route", "fe80000000000000003eecfffe123456 40\n", "00000000000000000000000000000001 40\n"),
    ],
)
def test_identifying_value_is_replaced_in_same_format(path: str, content: str, instead: str) -> None:
    (entry,) = masked(text(path, content))
    assert entry == text(path, instead)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/sys/a/address", "00:00:00:00:00:00\n"),
        ("/sys/a/broadcast", "ff:ff:ff:ff:ff:ff\n"),
        ("/sys/a/serial", "0\n"),
        ("/sys/a/modalias", "pci:v00008086d00001521sv00008086sd000000A2bc02sc00i00\n"),
        ("/sys/a/uevent", "PCI_SLOT_NAME=0000:3b:00.0\nPCI_ID=8086:1521\n"),
        ("/sys/a/dev", "10:229\n"),
        ("/proc/net/ipv6_route", "00000000000000000000000000000000 00\n"),
        ("/sys/devices/pci0000:00/0000:00:14.0/usb1/serial", "0000:00:14.0\n"),
    ],
)
def test_other_value_is_unchanged(path: str, content: str) -> None:
    assert masked(text(path, content)) == [text(path, content)]


def test_equal_values_stay_equal_and_different_values_different() -> None:
    uuid = "9c1a0d5e-0f3c-4b7d-8a4e-1234567890ab"
    instead = "00000000-0000-0000-0000-000000000001"
    assert masked(
        text(f"{FOLDER}/serial", "AB12CD\n"),
        text(f"{FOLDER}/1-2:1.0/uevent", "HID_UNIQ=AB12CD\n"),
        text("/sys/devices/other/serial", "AB12CE\n"),
        text("/sys/devices/other/name", "not AB12CDE\n"),
        text(f"/sys/devices/x/{uuid}/name", "a\n"),
        Entry(f"/sys/bus/mdev/devices/{uuid}", "link", f"../../../devices/x/{uuid}"),
    ) == sorted(
        [
            text(f"{FOLDER}/serial", "000002\n"),
            text(f"{FOLDER}/1-2:1.0/uevent", "HID_UNIQ=000002\n"),
            text("/sys/devices/other/serial", "000003\n"),
            text("/sys/devices/other/name", "not AB12CDE\n"),
            text(f"/sys/devices/x/{instead}/name", "a\n"),
            Entry(
                f"/sys/bus/mdev/devices/{instead}",
                "link",
                f"../../../devices/x/{instead}",
            ),
        ]
    )


def test_identifying_value_inside_a_word_is_replaced() -> None:
    assert masked(
        text("/sys/class/nvme/nvme0/serial", "S4EVNX0R123\n"),
        text("/sys/class/nvme/nvme0/subsysnqn", "nqn.2014.08.org.nvmexpress:144d144dS4EVNX0R123 SAMSUNG\n"),
        text("/sys/devices/x/net/enx3cecef123456/address", "3c:ec:ef:12:34:56\n"),
        text("/sys/devices/x/net/enx3cecef123456/phys_switch_id", "3cecef123456\n"),
    ) == [
        text("/sys/class/nvme/nvme0/serial", "00000000003\n"),
        text("/sys/class/nvme/nvme0/subsysnqn", "nqn.2014.08.org.nvmexpress:144d144d00000000003 SAMSUNG\n"),
        text("/sys/devices/x/net/enx000000000001/address", "00:00:00:00:00:01\n"),
        text("/sys/devices/x/net/enx000000000001/phys_switch_id", "000000000001\n"),
    ]


def test_content_of_long_binary_file_is_omitted() -> None:
    header, whole = Entry("/sys/a/config", "bytes", "A" * 88), Entry("/sys/b/config", "bytes", "A" * 5464)
    assert masked(header, whole) == [header, Entry("/sys/b/config", "there")]
