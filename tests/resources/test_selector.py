"""Which devices selectors match, and the reasons for mismatches."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostdevices import AttributeValue, Device, Version
from hostdevices.globs import path_pattern
from resources.danger import danger_reason
from resources.matching import Accepted, accepts, version_key
from resources.presets import PRESETS, preset
from resources.selector import (
    AllOf,
    AnyOf,
    Attribute,
    Ids,
    Kinds,
    Not,
    Paths,
    Selection,
    concerns,
    describe,
    path_globs,
)
from tests.hostdevices.made import device

VF = device("vf", "pci", attributes={"vendor": "15b3", "sriov": "vf", "vfIndex": 3, "class": "020000"})


@pytest.mark.parametrize(
    ("wanted", "value", "fits"),
    [
        ("15b3", "15b3", True),
        ("15*", "15b3", True),
        ("15B3", "15b3", False),
        ("[12]5b?", "15b3", True),
        ("15b3", "15b3 ", False),
        (4, 4, True),
        (4, "4", False),
        (1, True, False),
        (True, True, True),
        (False, True, False),
        (True, 1, False),
        ("true", True, False),
        ("4", 4, True),
        (">=4", 4, True),
        ("> 4", 4, False),
        ("<10", 9, True),
        ("<=-1", -2, True),
        ("2..7", 7, True),
        ("2..7", 8, False),
        ("many", 4, False),
        ("*", 4, False),
        (">=2", "3", False),
        ("1.2", Version("1.2.0"), True),
        ("1.2", Version("1.2.1"), False),
        (">=1.10", Version("1.9.9"), False),
        (">1.9", Version("1.10.0"), True),
        ("<2.0.0", Version("2.0.0-rc.1"), True),
        ("1.0..1.5", Version("1.4.7+build.5"), True),
        ("1.0..1.5", Version("1.5.1"), False),
        ("1.0..1.5", Version("0.9"), False),
        (4, Version("4"), False),
    ],
)
def test_values_are_compared_by_their_type(wanted: Accepted, value: AttributeValue, fits: bool) -> None:
    assert accepts(wanted, value) is fits


def test_versions_are_ordered_as_in_semver() -> None:
    ordered = (
        "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1 2"
    )
    assert sorted(ordered.split(), key=version_key) == ordered.split()
    assert version_key("v1.2") == version_key("1.2.0+build.7")


@given(st.text(), st.text())
def test_comparison_of_any_values_raises_no_error(wanted: str, value: str) -> None:
    for found in (value, 7, True, Version(value)):
        accepts(wanted, found)


@pytest.mark.parametrize(
    ("glob", "path", "wildcards"),
    [
        ("/dev/ttyUSB*", "/dev/ttyUSB12", ("12",)),
        ("/dev/*", "/dev/snd/timer", None),
        ("/dev/**/timer", "/dev/snd/timer", ("snd/",)),
        ("/dev/**/fuse", "/dev/fuse", ("",)),
        ("/dev/snd/pcmC?D[0-3][pc]", "/dev/snd/pcmC1D2c", ("1", "2", "c")),
        ("/dev/[!t]ty", "/dev/pty", ("p",)),
        ("/dev/[!t]ty", "/dev/tty", None),
        ("/dev/a[!b]c", "/dev/a/c", None),
        ("/dev/[z-a]", "/dev/m", ("m",)),
        ("/dev/a.b", "/dev/axb", None),
        ("/dev/[", "/dev/[", ()),
        ("/dev/[a&&b--c||d~~e]", "/dev/&", ("&",)),
        ("/dev/x*", "/dev/x\ny", ("\ny",)),
    ],
)
def test_path_glob_matches_path_and_captures_wildcards(glob: str, path: str, wildcards: tuple[str, ...] | None) -> None:
    found = path_pattern(glob).fullmatch(path)
    assert (found.groups() if found else None) == wildcards


@given(st.text(alphabet="/ab*?[]!^-\\.&~|(){}$+"))
def test_every_text_is_a_glob_and_matches_itself_without_wildcards(glob: str) -> None:
    pattern = path_pattern(glob)
    assert pattern.groups or pattern.fullmatch(glob)


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        (Kinds(("pci",)), ""),
        (Kinds(("gpu", "accel")), "its kind is pci, not gpu or accel"),
        (Attribute("vendor", ("8086", "15*")), ""),
        (Attribute("vendor", ("8086", "10de")), "its vendor is 15b3, not 8086 or 10de"),
        (Attribute("vfIndex", (">3", True)), "its vfIndex is 3, not >3 or true"),
        (Attribute("pfName", ("*",)), "it has no attribute pfName"),
        (Paths(("/dev/x",)), "it has no device node"),
        (Ids(("v*",)), ""),
        (Ids(("w*",)), "its id is not w*"),
        (AllOf((Kinds(("pci",)), Ids(("w",)), Kinds(("gpu",)))), "its id is not w"),
        (AllOf(()), ""),
        (AnyOf((Kinds(("gpu",)), Ids(("vf",)))), ""),
        (AnyOf((AllOf((Kinds(("gpu",)), Ids(("x",)))), Ids(("y",)))), "its id is not y"),
        (AnyOf((Kinds(("gpu",)), Kinds(("nic",)))), "its kind is pci, not gpu; its kind is pci, not nic"),
        (AnyOf(()), "nothing is selected"),
        (Not(Kinds(("gpu",))), ""),
        (Not(AnyOf((Kinds(("pci",)), Ids(("x",))))), "it is excluded: kind pci or id x"),
        (preset("sriov-vf"), ""),
        (preset("kvm"), "its kind is pci, not misc"),
    ],
)
def test_selector_explains_mismatch(selector: Selection, reason: str) -> None:
    assert selector.mismatch(VF) == reason


@pytest.mark.parametrize(
    ("kind", "vendor", "name", "words"),
    [
        ("gpu", "10de", "profile", " (set `settings.nvml` to read it from NVIDIA's library)"),
        ("gpu", "10de", "memory", " (set `settings.nvml` to read it from NVIDIA's library)"),
        ("gpu", "1002", "profile", ""),
        ("gpu", "10de", "speed", ""),
        ("pci", "8086", "ddpProfile", " (set `settings.devlink` to read it from the card's driver)"),
        ("pci", "15b3", "ddpProfile", ""),
    ],
)
def test_reason_names_the_setting_that_provides_missing_attribute(
    kind: str, vendor: str, name: str, words: str
) -> None:
    bare = device("a", kind, attributes={"vendor": vendor})
    assert Attribute(name, ("x",)).mismatch(bare) == f"it has no attribute {name}{words}"


def test_reason_escapes_control_characters() -> None:
    stick = device("stick", "usb", attributes={"model": "\x1b[2Jgotcha\n"})
    assert Attribute("model", ("x",)).mismatch(stick) == r"its model is \x1b[2Jgotcha\n, not x"


def test_path_selector_matches_if_all_nodes_match() -> None:
    gpu = device("gpu", "gpu", "/dev/dri/card0", "/dev/dri/renderD128")
    assert Paths(("/dev/dri/*",)).mismatch(gpu) == ""
    assert Paths(("/dev/dri/card*", "/dev/dri/render*")).mismatch(gpu) == ""
    assert Paths(("/dev/dri/render*",)).mismatch(gpu) == "its node /dev/dri/card0 does not match /dev/dri/render*"


def test_selector_concerns_the_kinds_that_it_can_match() -> None:
    assert concerns(preset("gpu"), "gpu")
    assert not concerns(preset("gpu"), "nic")
    assert not concerns(AllOf((Kinds(("gpu",)), Ids(("*",)))), "nic")
    assert concerns(AnyOf((Kinds(("gpu",)), Ids(("*",)))), "nic")
    assert concerns(Not(Kinds(("gpu",))), "gpu")


def test_selector_description_has_all_parts() -> None:
    selector = AllOf((AnyOf((preset("gpu"), Paths(("/dev/x",)))), Not(AllOf((Ids(("a",)), Attribute("size", (4,)))))))
    assert describe(selector) == "(gpu or path /dev/x) and not (id a and size 4)"


def test_path_globs_of_nested_selectors_are_collected() -> None:
    selector = AllOf((Paths(("/dev/a*", "/dev/b")), Not(AnyOf((Paths(("/dev/c",)), Paths(("/dev/a*",)))))))
    assert path_globs(selector) == ("/dev/a*", "/dev/b", "/dev/c")


def test_path_globs_of_other_kinds_are_omitted() -> None:
    assert path_globs(AllOf((Kinds(("block",)), Paths(("/dev/loop1*",))))) == ()
    assert path_globs(AllOf((Kinds(("block", "path")), Paths(("/dev/loop1*",))))) == ("/dev/loop1*",)


def test_every_preset_has_valid_name_and_help() -> None:
    for name, entry in PRESETS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert entry.help
        assert preset(name).selector == entry.selector
    with pytest.raises(KeyError):
        preset("gpus")


@pytest.mark.parametrize(
    ("node", "numbers", "reason"),
    [
        ("/dev/mem", (1, 1), "kernel's memory"),
        ("/dev/alias", (1, 2), "kernel's memory"),
        ("/dev/port", (1, 4), "I/O ports"),
        ("/dev/kmsg", (1, 11), "kernel's log"),
        ("/dev/tty1", (4, 1), "console"),
        ("/dev/tty", (5, 0), "console"),
        ("/dev/alias", (5, 1), "console"),
        ("/dev/alias", (5, 2), "console"),
        ("/dev/vcs1", (7, 1), "console"),
        ("/dev/alias", (10, 130), "power off"),
        ("/dev/alias", (10, 135), "clock"),
        ("/dev/nvram", (10, 144), "kernel's memory"),
        ("/dev/snapshot", (10, 231), "kernel's memory"),
        ("/dev/btrfs-control", (10, 234), "storage"),
        ("/dev/autofs", (10, 235), "storage"),
        ("/dev/sg0", (21, 0), "storage"),
        ("/dev/loop-control", (10, 237), "storage"),
        ("/dev/mapper/control", (10, 236), "storage"),
        ("/dev/nvme0", (240, 0), "storage"),
        ("/dev/ng0n1", (241, 0), "storage"),
        ("/dev/bsg/0:0:0:0", (242, 0), "storage"),
        ("/dev/watchdog1", (243, 1), "power off"),
        ("/dev/ipmi0", (244, 0), "power off"),
        ("/dev/rtc0", (245, 0), "clock"),
        ("/dev/uinput", (10, 223), "keyboard"),
        ("/dev/uhid", (10, 239), "keyboard"),
        ("/dev/cpu/0/msr", (202, 0), "processor"),
        ("/dev/raid", (10, 220), "storage"),
        ("/dev/raid", (10, 221), "storage"),
        ("/dev/mpt3ctl", (10, 59), "storage"),
        ("/dev/megaraid_sas_ioctl_node", (246, 0), "storage"),
        ("/dev/mmcblk0rpmb", (247, 0), "storage"),
        ("/dev/ndctl0", (248, 0), "storage"),
        ("/dev/nmem1", (249, 1), "storage"),
        ("/dev/hpilo/d0ccb0", (250, 0), "power off"),
        ("/dev/efi_capsule_loader", (10, 60), "firmware"),
        ("/dev/usbmon0", (251, 0), "keyboard"),
        ("/dev/ipmi/0", (252, 0), "power off"),
        ("/dev/mcelog", (10, 61), "kernel's memory"),
        ("/dev/zfs", (10, 62), "storage"),
        ("/dev/ttyprintk", (5, 3), "kernel's log"),
        ("/dev/vhci", (10, 137), "look like real ones"),
        ("/dev/made", (10, 203), "look like real ones"),
        ("/dev/cpu/microcode", (10, 184), "processor"),
        ("/dev/machine-checks", (10, 227), "kernel's memory"),
        ("/dev/hpet", (10, 228), "clock"),
        ("/dev/userio", (10, 240), "keyboard"),
        ("/dev/rfkill", (10, 242), "radios"),
        ("/dev/fb0", (29, 0), "console"),
        ("/dev/hvc0", (229, 0), "console"),
        ("/dev/aac0", (236, 0), "storage"),
        ("/dev/bcachefs-ctl", (10, 61), "storage"),
        ("/dev/cachefiles", (10, 62), "storage"),
        ("/dev/cxl/mem0", (237, 0), "storage"),
        ("/dev/ublk-control", (10, 63), "storage"),
        ("/dev/ublkc0", (238, 0), "storage"),
        ("/dev/crash", (10, 64), "kernel's memory"),
        ("/dev/vboxdrv", (10, 65), "kernel's memory"),
        ("/dev/xen/privcmd", (10, 66), "kernel's memory"),
        ("/dev/hsmp", (10, 67), "processor"),
        ("/dev/isst_interface", (10, 68), "processor"),
        ("/dev/fwctl/fwctl0", (239, 0), "firmware"),
        ("/dev/mei0", (240, 0), "firmware"),
        ("/dev/mst/mt4123_pciconf0", (241, 0), "firmware"),
        ("/dev/switchtec0", (242, 0), "firmware"),
        ("/dev/wmi/dell-smbios", (10, 69), "firmware"),
        ("/dev/vmcp", (10, 70), "power off"),
        ("/dev/megadev0", (244, 0), "storage"),
        ("/dev/pktcdvd/control", (10, 71), "storage"),
        ("/dev/rshim0/boot", (248, 1), "firmware"),
        ("/dev/pmcsas0", (245, 0), "storage"),
        ("/dev/twa0", (246, 0), "storage"),
        ("/dev/vmmon", (10, 72), "kernel's memory"),
        ("/dev/xen/hypercall", (10, 73), "kernel's memory"),
    ],
)
def test_node_is_dangerous_with_reason(node: str, numbers: tuple[int, int], reason: str) -> None:
    assert reason in danger_reason(device("x", "path", node, numbers=numbers))


def test_console_and_possible_uplink_are_dangerous() -> None:
    assert "console" in danger_reason(device("ttys0", "tty", "/dev/ttyS0", attributes={"console": True}))
    assert "uplink" in danger_reason(device("nic", "nic", attributes={"uplinkUnknown": True}))


@pytest.mark.parametrize(
    "harmless",
    [
        device("kvm", "misc", "/dev/kvm", numbers=(10, 232)),
        device("fuse", "misc", "/dev/fuse", numbers=(10, 229)),
        device("ttys", "tty", "/dev/ttyS0", numbers=(4, 64)),
        device("null", "path", "/dev/null", numbers=(1, 3)),
        # the administrator enabled this in the kernel (enable_unsafe_noiommu_mode)
        device("vfio", "vfio", "/dev/vfio/noiommu-0", numbers=(243, 0)),
        device("afu", "path", "/dev/cxl/afu0.0s", numbers=(244, 1)),  # an accelerator of POWER8, not a memory device
        device("twain", "path", "/dev/twain", numbers=(245, 0)),
        device("nic", "nic", attributes={"uplink": False}),
    ],
)
def test_harmless_device_is_not_dangerous(harmless: Device) -> None:
    assert danger_reason(harmless) == ""
