"""Selectors and groups in the file."""

import msgspec
import pytest

from nodeplug.config import loads
from nodeplug.config.misplaced import MISPLACED
from nodeplug.config.schema import ResourceEntry, Select
from nodeplug.config.selectors import KINDS
from resources.groups import Folder, Functions, PathMember, PathSet, SameAttribute, Within
from resources.presets import PRESETS, preset
from resources.selector import AllOf, AnyOf, Attribute, Ids, Kinds, Not, Paths
from tests.nodeplug.config.text import errors_of, errors_with_settings, one


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_selected_by_name(name: str) -> None:
    assert one(f"select: {name}").selector == preset(name)


def test_keys_are_combined_with_and_list_entries_with_or() -> None:
    found = one("""
        select:
          preset: [gpu, accel]
          kind: [gpu, accel]
          id: gpu-*
          path: [/dev/dri/*, /dev/accel/*]
          attributes:
            vendor: ["0x10DE", "8086"]
            memory: ">=1000"
            render: true
            index: [0, 2]
            pcieRoot: pci0000:*
          all: [gpu]
          any: [gpu, {kind: accel}]
          not: {attributes: {sriov: vf}}
    """)
    assert found.selector == AllOf(
        (
            AnyOf((preset("gpu"), preset("accel"))),
            Kinds(("gpu", "accel")),
            Ids(("gpu-*",)),
            Paths(("/dev/dri/*", "/dev/accel/*")),
            Attribute("vendor", ("10de", "8086")),
            Attribute("memory", (">=1000",)),
            Attribute("render", (True,)),
            Attribute("index", (0, 2)),
            Attribute("resource.kubernetes.io/pcieRoot", ("pci0000:*",)),
            AllOf((preset("gpu"),)),
            AnyOf((preset("gpu"), Kinds(("accel",)))),
            Not(Attribute("sriov", ("vf",))),
        )
    )


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (">=10Gi", ">=10737418240"),
        ("1.5Gi..2G", "1610612736..2000000000"),
        ("8Gi", "8589934592"),
        ("< 1k", "< 1000"),
        ("1000", "1000"),
    ],
)
def test_memory_is_read_as_a_kubernetes_quantity(text: str, parsed: str) -> None:
    assert one(f"select: {{attributes: {{memory: '{text}'}}}}").selector == Attribute("memory", (parsed,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus", "unknown preset gpus; did you mean gpu?"),
        ("{preset: [gpu, KVM]}", "unknown preset KVM; did you mean kvm?"),
        ("{kind: gpus}", "unknown kind gpus; did you mean gpu?"),
        ("{path: ttyUSB0}", "ttyUSB0 is not below /dev; device nodes are"),
        ("{path: /dev/./x}", "/dev/./x has empty, `.` or `..` components"),
        ("{path: /dev/*a*a*a*a*a*a*a}", "/dev/*a*a*a*a*a*a*a has more than 6 wildcards"),
        (
            "{path: /dev/dri/**}",
            "/dev/dri/** says nothing of the names in these folders; for all of them: /dev/dri/**/*",
        ),
        ("{kind: []}", "an empty list selects nothing"),
        ("{any: []}", "an empty list selects nothing"),
        ("{attributes: {vendr: x}}", "unknown attribute vendr; did you mean vendor?"),
        ("{attributes: {pciAddress: x}}", "unknown attribute pciAddress; did you mean pciBusID?"),
        (
            "{attributes: {pfName: 'ens1f0#0-3'}}",
            "ens1f0#0-3 is not the name of an interface: select functions by vfIndex; write pfName: ens1f0 and vfIndex:"
            ' "0..3"',
        ),
        (
            "{attributes: {vendor: 8086}}",
            'vendor is hexadecimal digits in quotes ("10de"), or a glob, not 8086; write it in quotes: "8086"',
        ),
        ("{attributes: {vendor: intel}}", 'vendor is hexadecimal digits in quotes ("10de"), or a glob, not intel'),
        ("{attributes: {serial: 12}}", 'serial is a text or a glob, not 12; write it in quotes: "12"'),
        ("{attributes: {carrier: up}}", "carrier is true or false, not up"),
        ("{attributes: {model: true}}", 'model is a text or a glob, not true; write it in quotes: "true"'),
        ("{attributes: {mtu: big}}", 'mtu is a whole number, a comparison (">=2") or a range ("2..7"), not big'),
        (f"{{attributes: {{mtu: '1..{'9' * 5000}'}}}}", "mtu is a whole number, a comparison"),  # too long for an int
        ("{attributes: {mtu: []}}", "mtu has an empty list of values"),
        ("{attributes: {mtu: 9k}}", 'mtu is a whole number, a comparison (">=2") or a range ("2..7"), not 9k'),
        (
            "{attributes: {memory: '>=10GB'}}",
            'memory is an amount of bytes (10Gi), a comparison (">=10Gi") or a range ("10Gi..40Gi"), not >=10GB',
        ),
        ("{attributes: {memory: 80Gi..40Gi}}", 'nothing is in the range 80Gi..40Gi; write "40Gi..80Gi"'),
        ("{attributes: {linkType: ether}}", "no link is of the type ether; write ethernet"),
        ("{}", "this selects every device; select some; `all: []` selects all of them"),
        ("{any: [kvm, {}]}", "this selects every device; select some; `all: []` selects all of them"),
        ("{any: [kvm, [tun]]}", "this must be a text or a mapping, not a list"),
        ("{not: {kind: x}}", "unknown kind x"),
        ("{cel: device.driver}", "unknown key cel"),
    ],
)
def test_invalid_selectors_are_refused(text: str, message: str) -> None:
    (found,) = errors_with_settings(f"select: {text}")
    assert found.startswith(message)


def test_attribute_errors_have_the_place_of_the_name_or_value() -> None:
    assert errors_of("""
        resources:
          - name: x/y
            select:
              any:
                - attributes:
                    vendr: x
                    serial: [a,
                             12]
    """) == [
        "6:13: unknown attribute vendr; did you mean vendor?",
        '8:22: serial is a text or a glob, not 12; write it in quotes: "12"',
    ]


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("parent", Within()),
        ("functions", Functions()),
        ("{within: usb}", Within("usb")),
        ("{attribute: iommuGroup}", SameAttribute("iommuGroup")),
        ("{attribute: pcieRoot}", SameAttribute("resource.kubernetes.io/pcieRoot")),
    ],
)
def test_groups_are_read(text: str, group: object) -> None:
    assert one(f"select: camera\ngroup: {text}").group == group


def test_group_of_paths_selects_these_paths() -> None:
    found = one("""
        group:
          paths:
            - {path: /dev/snd/controlC*, containerPath: /dev/snd/controlC0}
            - {path: /dev/snd/pcmC*D0c, optional: true}
    """)
    members = (PathMember("/dev/snd/controlC*", "/dev/snd/controlC0"), PathMember("/dev/snd/pcmC*D0c", "", True))
    assert found.group == PathSet(members)
    assert found.selector == Paths(("/dev/snd/controlC*", "/dev/snd/pcmC*D0c"))


def test_group_of_a_folder_selects_all_its_nodes() -> None:
    found = one("group: {folder: /dev/snd/}\ncontainerPath: /dev/audio")
    assert (found.group, found.selector) == (Folder("/dev/snd"), Paths(("/dev/snd/**/*",)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "a group has exactly one of within, attribute, paths and folder"),
        ("{within: usb, attribute: serial}", "a group has exactly one of within, attribute, paths and folder"),
        ("{within: usbs}", "unknown kind usbs; did you mean usb?"),
        ("{attribute: serail}", "unknown attribute serail; did you mean serial?"),
        ("{paths: [{path: /dev/a*}, {path: /dev/b}]}", "the paths of a group must have the same number of wildcards"),
        ("{paths: [{path: /dev/a}, {path: /dev/b, containerPath: /dev/a}]}", "two nodes of a group have the same path"),
        ("{paths: [{path: /dev/a, optional: true}]}", "at least one path of a group must not be optional"),
        ("{folder: /srv}", "/srv is not below /dev; device nodes are"),
        ("{folder: /dev}", "/dev is not below /dev"),
        ("{folder: /dev/snd*}", "/dev/snd* has wildcards; name one folder"),
        ("{paths: []}", "at least one path of a group must not be optional"),
        ("{paths: [{path: /dev/a, containerPath: b}]}", "b is not an absolute path"),
        ("{paths: [{}]}", "the key path is missing"),
        ("{within: [usb]}", "this must be a text, not a list"),
    ],
)
def test_invalid_groups_are_refused(text: str, message: str) -> None:
    (found,) = errors_with_settings(f"select: camera\ngroup: {text}")
    assert found.startswith(message)


def test_path_globs_are_collected_from_all_resources() -> None:
    config = loads(b"""
        resources:
          - {name: x/a, select: {any: [kvm, {path: [/dev/ttyUSB*, /dev/x]}]}}
          - {name: x/b, group: {paths: [{path: /dev/snd/c*}, {path: /dev/x*, containerPath: /dev/y}]}}
          - {name: x/c, select: {path: /dev/x}}
          - {name: x/d, group: {folder: /dev/input}}
    """)
    assert config.path_globs == ("/dev/ttyUSB*", "/dev/x", "/dev/snd/c*", "/dev/x*", "/dev/input/**/*")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select: tty", "unknown preset tty; it is a kind of device: `{kind: tty}`"),
        ("select: {any: [{preset: pci}]}", "unknown preset pci; it is a kind of device: `{kind: pci}`"),
        ("select: /dev/ttyUSB0", "unknown preset /dev/ttyUSB0; it is a path: `{path: /dev/ttyUSB0}`"),
        ("select: {kind: usb-serial}", "unknown kind usb-serial; it is a preset: `{preset: usb-serial}`"),
        (
            'select: {preset: usb-serial, vendor: "10c4"}',
            "unknown key vendor; it is an attribute: `attributes: {vendor: ...}`",
        ),
        (
            'select: {preset: nic, pciBusID: "0000:3b:00.0"}',
            "unknown key pciBusID; it is an attribute: `attributes: {pciBusID: ...}`",
        ),
        ("select: zigbee", f"unknown preset zigbee; known are {', '.join(sorted(PRESETS))}"),
        ("select: {kind: dongle}", f"unknown kind dongle; known are {', '.join(KINDS)}"),
        (
            "select: {kind: usb, attributes: {colour: red}}",
            "unknown attribute colour; `nodeplug discover -o wide` shows those of the devices here",
        ),
        ("select: kvm\nkind: misc", "unknown key kind; it belongs below `select`: `select: {kind: ...}`"),
        ("select: kvm\nreplicas: 4", "unknown key replicas; did you mean shares?"),
    ],
)
def test_misplaced_words_are_refused_with_their_right_place(text: str, message: str) -> None:
    assert errors_with_settings(text) == [message]


def test_every_selector_key_is_recognised_beside_select() -> None:
    resource_keys = {x.encode_name for x in msgspec.structs.fields(ResourceEntry)}
    assert set(MISPLACED[ResourceEntry]) - {"replicas"} == {x.encode_name for x in msgspec.structs.fields(Select)}
    assert not resource_keys & set(MISPLACED[ResourceEntry])
