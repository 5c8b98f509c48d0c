"""Groups of devices that are allocated as one."""

from msgspec import structs

from hostdevices import Health
from resources.groups import Functions, PathMember, PathSet, SameAttribute, Within
from resources.resource import Resource
from resources.selector import Ids, Kinds, Paths
from tests.hostdevices.made import assigned, device, ids, unassigned_reason

CAMERA = [
    device("usb-cam", "usb", "/dev/bus/usb/001/004", attributes={"serial": "7"}, numa=(1,)),
    device(
        "video-cam",
        "video",
        "/dev/video0",
        parents=("usb-cam",),
        attributes={"serial": "7"},
        numa=(1,),
        numbers=(81, 0),
    ),
    device(
        "sound-cam",
        "sound",
        "/dev/snd/controlC1",
        "/dev/snd/pcmC1D0c",
        parents=("usb-cam",),
        numa=(0,),
        numbers=(116, 0),
    ),
]


def test_parts_of_one_device_form_a_group() -> None:
    found = assigned(CAMERA, Resource("x/camera", Kinds(("usb", "video", "sound")), group=Within("usb")))
    (camera,) = found.devices["x/camera"]
    assert camera.id == "x-camera-usb-cam"
    assert sorted(camera.children) == ["sound-cam", "usb-cam", "video-cam"]
    assert [node.path for node in camera.devnodes] == [
        "/dev/bus/usb/001/004",
        "/dev/snd/controlC1",
        "/dev/snd/pcmC1D0c",
        "/dev/video0",
    ]
    assert camera.numa_nodes == (0, 1)
    assert camera.attributes == {"serial": "7"}
    assert found.owners == {camera.id: "x/camera", **dict.fromkeys(camera.children, "x/camera")}


def test_group_keeps_its_id_when_its_nodes_are_renumbered() -> None:
    renumbered = [CAMERA[0], device("video-cam", "video", "/dev/video3", parents=("usb-cam",)), CAMERA[2]]
    resource = Resource("x/camera", Kinds(("usb", "video", "sound")), group=Within("usb"))
    assert ids(assigned(CAMERA, resource), "x/camera") == ids(assigned(renumbered, resource), "x/camera")


def test_group_has_the_health_of_its_worst_member() -> None:
    broken = device("sound-cam", "sound", "/dev/snd/controlC1", parents=("usb-cam",), health=Health(False, "gone"))
    resource = Resource("x/camera", Kinds(("video", "sound")), group=Within())
    (camera,) = assigned([*CAMERA[:2], broken], resource).devices["x/camera"]
    assert camera.health == Health(False, "sound-cam: gone")
    assert camera.parents == ("usb-cam",)


def test_unrelated_device_is_a_group_of_one() -> None:
    lone = device("video-csi", "video", "/dev/video9")
    found = assigned([*CAMERA, lone], Resource("x/camera", Kinds(("video", "sound")), group=Within("usb")))
    assert ids(found, "x/camera") == ["x-camera-usb-cam", "x-camera-video-csi"]


def test_functions_of_one_pci_device_form_a_group() -> None:
    address = "resource.kubernetes.io/pciBusID"
    devices = [device(f"pci-{i}", "pci", attributes={address: f"0000:3b:00.{i}"}) for i in range(2)]
    devices.append(device("pci-other", "pci", attributes={address: "0000:3c:00.0"}))
    found = assigned(devices, Resource("x/card", Kinds(("pci",)), group=Functions()))
    assert [x.children for x in found.devices["x/card"]] == [("pci-0", "pci-1"), ("pci-other",)]


def test_devices_with_the_same_attribute_form_a_group() -> None:
    devices = [device(f"f{i}", "pci", attributes={"iommuGroup": i // 2}) for i in range(4)]
    found = assigned(devices, Resource("x/pair", Kinds(("pci",)), group=SameAttribute("iommuGroup")))
    assert [x.children for x in found.devices["x/pair"]] == [("f0", "f1"), ("f2", "f3")]
    assert all(i.startswith("x-pair-iommugroup-") for i in ids(found, "x/pair"))


CAPTURE = PathSet(
    (
        PathMember("/dev/snd/controlC*", "/dev/snd/controlC0"),
        PathMember("/dev/snd/pcmC*D0c", "/dev/snd/pcmC0D0c"),
        PathMember("/dev/snd/midiC*D0", optional=True),
    )
)


def test_group_of_usb_devices_has_all_addresses() -> None:
    """A virtual machine needs each address. All other attributes must be equal."""
    facts = [{"bus": "usb", "usbAddress": f"1:{number}", "vendor": vendor} for number, vendor in ((9, "a"), (3, "b"))]
    pair = [device(f"usb-{x['vendor']}", "usb", f"/dev/{x['vendor']}", attributes=x) for x in facts]
    (both,) = assigned(pair, Resource("x/set", Kinds(("usb",)), group=SameAttribute("bus"))).devices["x/set"]
    assert dict(both.attributes) == {"bus": "usb", "usbAddress": "1:9,1:3"}


def test_path_group_has_configured_container_paths() -> None:
    names = ["controlC1", "pcmC1D0c", "controlC2", "pcmC2D0c", "midiC2D0", "controlC3"]
    files = [device(f"path-{n.lower()}", "path", f"/dev/snd/{n}", numbers=(116, i)) for i, n in enumerate(names)]
    found = assigned(files, Resource("x/capture", Paths(("/dev/snd/*",)), group=CAPTURE))
    first, second = found.devices["x/capture"]
    assert [(n.path, n.container_path) for n in first.devnodes] == [
        ("/dev/snd/controlC1", "/dev/snd/controlC0"),
        ("/dev/snd/pcmC1D0c", "/dev/snd/pcmC0D0c"),
    ]
    assert [n.path for n in second.devnodes] == ["/dev/snd/controlC2", "/dev/snd/pcmC2D0c", "/dev/snd/midiC2D0"]
    assert (
        unassigned_reason(found, "path-controlc3")
        == "x/capture: the group also needs a node that matches /dev/snd/pcmC*D0c"
    )


def test_path_group_is_incomplete_if_another_resource_owns_a_member() -> None:
    files = [device(f"path-{n}", "path", f"/dev/snd/{n}") for n in ("controlC1", "pcmC1D0c")]
    found = assigned(
        files, Resource("x/one", Ids(("path-pcmC1D0c",))), Resource("x/capture", Paths(("/dev/snd/*",)), group=CAPTURE)
    )
    assert ids(found, "x/capture") == []


def test_device_is_in_at_most_one_path_group() -> None:
    card = device("sound", "sound", "/dev/snd/a1", "/dev/snd/b1", "/dev/snd/a2", "/dev/snd/b2", numbers=(116, 0))
    rule = PathSet((PathMember("/dev/snd/a*"), PathMember("/dev/snd/b*")))
    found = assigned([card], Resource("x/pair", Kinds(("sound",)), group=rule))
    assert [[n.path for n in x.devnodes] for x in found.devices["x/pair"]] == [["/dev/snd/a1", "/dev/snd/b1"]]


def test_second_device_with_the_same_path_is_unassigned_with_reason() -> None:
    parts = [device(name, "sound", "/dev/snd/a1", numbers=(116, number)) for number, name in enumerate(("one", "two"))]
    found = assigned(parts, Resource("x/a", Kinds(("sound",)), group=PathSet((PathMember("/dev/snd/a*"),))))
    assert ids(found, "x/a") == ["x-a-one"]
    assert [(x.device.id, x.reason) for x in found.rest] == [
        ("two", "x/a: the group has another device with the same path")
    ]


def test_group_enumeration_lists_those_of_its_members() -> None:
    numbers = ("7", "", "9", "7")
    parts = [structs.replace(device(f"p{i}", "video"), enumeration=n) for i, n in enumerate(numbers)]
    parts = [structs.replace(x, attributes={"bus": "usb"}) for x in parts]
    (camera,) = assigned(parts, Resource("x/camera", Kinds(("video",)), group=SameAttribute("bus"))).devices["x/camera"]
    assert camera.enumeration == "7,9"


def test_path_group_prefers_a_device_to_the_path_of_its_node() -> None:
    card = device("sound", "sound", "/dev/snd/a1", numbers=(116, 0))
    file = device("path-snd-a1", "path", "/dev/snd/a1", numbers=(116, 0), parents=("sound",))
    found = assigned(
        [card, file], Resource("x/a", Paths(("/dev/snd/a*",)), group=PathSet((PathMember("/dev/snd/a*"),)))
    )
    (pair,) = found.devices["x/a"]
    assert (pair.id, pair.children, found.rest) == ("x-a-sound", ("sound", "path-snd-a1"), ())


def test_group_syspath_is_the_common_folder_of_its_members() -> None:
    syspath = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-3"
    parts = [structs.replace(device(f"p{i}", "video"), syspath=f"{syspath}/1-3:1.{i}") for i in range(2)]
    found = assigned(parts, Resource("x/camera", Kinds(("video",)), group=SameAttribute("bus")))
    assert [x.syspath for x in found.devices["x/camera"]] == [f"{syspath}/1-3:1.0", f"{syspath}/1-3:1.1"]
    parts = [structs.replace(x, attributes={"bus": "usb"}) for x in parts]
    found = assigned(parts, Resource("x/camera", Kinds(("video",)), group=SameAttribute("bus")))
    assert [x.syspath for x in found.devices["x/camera"]] == [syspath]
