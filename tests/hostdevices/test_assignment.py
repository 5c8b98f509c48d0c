"""Which resource owns which device, and why the rest is nobody's."""

from collections.abc import Iterable, Mapping

from hostdevices import HEALTHY, AttributeValue, Device, Devnode, Health, Inventory
from hostdevices.assignment import Assignment, assign
from hostdevices.groups import Functions, PathMember, PathSet, SameAttribute, Within
from hostdevices.presets import preset
from hostdevices.resource import Resource
from hostdevices.selector import AllOf, AnyOf, Attribute, Ids, Kinds, Paths


def device(
    id: str,  # noqa: A002 - the field's name
    kind: str = "misc",
    *nodes: str,
    within: tuple[str, ...] = (),
    attributes: Mapping[str, AttributeValue] = {},
    numa: tuple[int, ...] = (),
    health: Health = HEALTHY,
    numbers: tuple[int, int] = (240, 0),
    node_kind: str = "c",
) -> Device:
    return Device(
        id=id,
        kind=kind,
        name=id,
        attributes={"name": id, **attributes},
        devnodes=tuple(
            Devnode(path, "b" if node_kind == "b" else "c", numbers[0], numbers[1] + i) for i, path in enumerate(nodes)
        ),
        numa_nodes=numa,
        within=within,
        health=health,
    )


def assigned(devices: Iterable[Device], *resources: Resource) -> Assignment:
    return assign(Inventory.of(devices), resources)


def ids(assignment: Assignment, resource: str) -> list[str]:
    return [found.id for found in assignment.devices[resource]]


def why(assignment: Assignment, device_id: str) -> str:
    return next(found.reason for found in assignment.rest if found.device.id == device_id)


def test_the_first_resource_that_means_a_device_owns_it() -> None:
    found = assigned(
        [device("a", "gpu"), device("b", "gpu")],
        Resource("x/first", Ids(("a",))),
        Resource("x/second", Kinds(("gpu",))),
    )
    assert (ids(found, "x/first"), ids(found, "x/second")) == (["a"], ["b"])
    assert found.owners == {"a": "x/first", "b": "x/second"}
    assert found.rest == ()


def test_a_resource_without_devices_is_there_and_empty() -> None:
    assert assigned([], Resource("x/kvm", preset("kvm"))).devices == {"x/kvm": ()}


def test_a_whole_is_not_for_a_resource_when_another_owns_a_part() -> None:
    devices = [device("card", "gpu", within=("pci-1",)), device("pci-1", "pci")]
    found = assigned(devices, Resource("x/gpu", preset("gpu")), Resource("x/pci", Kinds(("pci",))))
    assert ids(found, "x/pci") == []
    assert why(found, "pci-1") == "x/pci: x/gpu owns a part of it, card"


def test_who_owns_a_whole_owns_its_parts_however_far_below_and_hands_them_out_with_it() -> None:
    devices = [
        device("tty", "tty", "/dev/ttyUSB0", within=("usb-1",), health=Health(False, "no answer")),
        device("usb-1", "usb", "/dev/bus/usb/001/002", within=("pci-1",), numbers=(189, 1)),
        device("pci-1", "pci"),
    ]
    found = assigned(devices, Resource("x/pci", Kinds(("pci",))), Resource("x/tty", Kinds(("tty",))))
    assert ids(found, "x/tty") == []
    (whole,) = found.devices["x/pci"]
    assert (whole.id, whole.kind, whole.members) == ("pci-1", "pci", ("usb-1", "tty"))
    assert [node.path for node in whole.devnodes] == ["/dev/bus/usb/001/002", "/dev/ttyUSB0"]
    assert whole.health == Health(False, "tty: no answer")
    assert found.owners == {"pci-1": "x/pci", "usb-1": "x/pci", "tty": "x/pci"}
    assert found.rest == ()


def test_two_parts_of_one_whole_may_have_two_owners() -> None:
    devices = [device("tty", "tty", within=("usb-1",)), device("video", "video", within=("usb-1",))]
    found = assigned(devices, Resource("x/tty", Kinds(("tty",))), Resource("x/video", Kinds(("video",))))
    assert (ids(found, "x/tty"), ids(found, "x/video")) == (["tty"], ["video"])


def test_within_one_resource_the_whole_goes_before_its_parts() -> None:
    devices = [device("a-part", "gpu", within=("the-whole",)), device("the-whole", "pci")]
    found = assigned(devices, Resource("x/all", AllOf(())))
    assert [(x.id, x.members) for x in found.devices["x/all"]] == [("the-whole", ("a-part",))]


def test_a_node_with_two_names_is_handed_out_once() -> None:
    port = device("tty-ftdi", "tty", "/dev/ttyUSB0", numbers=(188, 0))
    link = device("path-by-id", "path", "/dev/serial/by-id/usb-ftdi", numbers=(188, 0), within=("tty-ftdi",))
    found = assigned([port, link], Resource("x/serial", Kinds(("tty",))))
    assert [node.path for node in found.devices["x/serial"][0].devnodes] == ["/dev/ttyUSB0"]


def test_a_dangerous_device_goes_to_the_resource_that_says_so() -> None:
    disk = device("disk", "block", "/dev/sda", node_kind="b", numbers=(8, 0))
    everything = Resource("x/all", AllOf(()))
    assert "only a resource with `dangerous: true` may offer it" in why(assigned([disk], everything), "disk")
    found = assigned([disk], everything, Resource("x/disk", preset("block"), dangerous=True))
    assert ids(found, "x/disk") == ["disk"]


def test_a_whole_with_a_dangerous_part_is_dangerous() -> None:
    devices = [
        device("stick", "usb", "/dev/bus/usb/001/002", numbers=(189, 1)),
        device("disk", "block", "/dev/sda", node_kind="b", within=("stick",)),
    ]
    found = assigned(devices, Resource("x/usb", Kinds(("usb",))))
    assert why(found, "stick").startswith("x/usb: its part disk is dangerous: /dev/sda is a block device")


def test_the_uplink_is_nobodys() -> None:
    found = assigned([device("nic-1", "nic", attributes={"uplink": True})], Resource("x/nic", Kinds(("nic",))))
    assert "default route" in why(found, "nic-1")


def test_only_the_chosen_nodes_are_handed_out_and_judged() -> None:
    gpu = device("gpu", "gpu", "/dev/dri/card0", "/dev/dri/renderD128")
    found = assigned([gpu], Resource("x/gpu", preset("gpu"), nodes=("/dev/dri/renderD*",)))
    assert [node.path for node in found.devices["x/gpu"][0].devnodes] == ["/dev/dri/renderD128"]


def test_health_policy_present_looks_at_nothing_but_presence() -> None:
    nic = device("nic", "nic", health=Health(False, "no carrier"))
    strict = assigned([nic], Resource("x/nic", preset("nic")))
    present = assigned([nic], Resource("x/nic", preset("nic"), health="present"))
    assert strict.devices["x/nic"][0].health == Health(False, "no carrier")
    assert present.devices["x/nic"][0].health.healthy


def test_the_reason_of_the_nearest_resources_is_told() -> None:
    resources = (
        Resource("x/kvm", preset("kvm")),
        Resource("x/amd", preset("amd-gpu")),
        Resource("x/gpu", AnyOf((Kinds(("accel",)), AllOf((Kinds(("gpu",)), Attribute("vendor", ("8086",))))))),
    )
    found = assigned([device("g", "gpu", attributes={"vendor": "10de"}), device("n", "nic")], *resources)
    assert why(found, "g") == "x/amd: its vendor is 10de, not 1002; x/gpu: its vendor is 10de, not 8086"
    assert why(found, "n") == "no resource is about devices of kind nic"


CAMERA = [
    device("usb-cam", "usb", "/dev/bus/usb/001/004", attributes={"serial": "7"}, numa=(1,)),
    device(
        "video-cam", "video", "/dev/video0", within=("usb-cam",), attributes={"serial": "7"}, numa=(1,), numbers=(81, 0)
    ),
    device(
        "sound-cam",
        "sound",
        "/dev/snd/controlC1",
        "/dev/snd/pcmC1D0c",
        within=("usb-cam",),
        numa=(0,),
        numbers=(116, 0),
    ),
]


def test_the_parts_of_one_device_are_handed_out_as_one() -> None:
    found = assigned(CAMERA, Resource("x/camera", Kinds(("usb", "video", "sound")), group=Within("usb")))
    (camera,) = found.devices["x/camera"]
    assert camera.id == "x-camera-usb-cam"
    assert sorted(camera.members) == ["sound-cam", "usb-cam", "video-cam"]
    assert [node.path for node in camera.devnodes] == [
        "/dev/bus/usb/001/004",
        "/dev/snd/controlC1",
        "/dev/snd/pcmC1D0c",
        "/dev/video0",
    ]
    assert camera.numa_nodes == (0, 1)
    assert camera.attributes == {"serial": "7"}
    assert found.owners == {camera.id: "x/camera", **dict.fromkeys(camera.members, "x/camera")}


def test_a_group_keeps_its_id_when_its_nodes_are_renumbered() -> None:
    renumbered = [CAMERA[0], device("video-cam", "video", "/dev/video3", within=("usb-cam",)), CAMERA[2]]
    resource = Resource("x/camera", Kinds(("usb", "video", "sound")), group=Within("usb"))
    assert ids(assigned(CAMERA, resource), "x/camera") == ids(assigned(renumbered, resource), "x/camera")


def test_a_group_is_as_healthy_as_its_worst_member() -> None:
    broken = device("sound-cam", "sound", "/dev/snd/controlC1", within=("usb-cam",), health=Health(False, "gone"))
    resource = Resource("x/camera", Kinds(("video", "sound")), group=Within())
    (camera,) = assigned([*CAMERA[:2], broken], resource).devices["x/camera"]
    assert camera.health == Health(False, "sound-cam: gone")
    assert camera.within == ("usb-cam",)


def test_devices_with_nothing_in_common_are_handed_out_alone() -> None:
    lone = device("video-csi", "video", "/dev/video9")
    found = assigned([*CAMERA, lone], Resource("x/camera", Kinds(("video", "sound")), group=Within("usb")))
    assert ids(found, "x/camera") == ["x-camera-usb-cam", "x-camera-video-csi"]


def test_functions_of_one_pci_device_are_handed_out_as_one() -> None:
    address = "resource.kubernetes.io/pciBusID"
    devices = [device(f"pci-{i}", "pci", attributes={address: f"0000:3b:00.{i}"}) for i in range(2)]
    devices.append(device("pci-other", "pci", attributes={address: "0000:3c:00.0"}))
    found = assigned(devices, Resource("x/card", Kinds(("pci",)), group=Functions()))
    assert [x.members for x in found.devices["x/card"]] == [("pci-0", "pci-1"), ("pci-other",)]


def test_devices_with_the_same_attribute_are_handed_out_as_one() -> None:
    devices = [device(f"f{i}", "pci", attributes={"iommuGroup": i // 2}) for i in range(4)]
    found = assigned(devices, Resource("x/pair", Kinds(("pci",)), group=SameAttribute("iommuGroup")))
    assert [x.members for x in found.devices["x/pair"]] == [("f0", "f1"), ("f2", "f3")]
    assert all(i.startswith("x-pair-iommugroup-") for i in ids(found, "x/pair"))


CAPTURE = PathSet(
    (
        PathMember("/dev/snd/controlC*", "/dev/snd/controlC0"),
        PathMember("/dev/snd/pcmC*D0c", "/dev/snd/pcmC0D0c"),
        PathMember("/dev/snd/midiC*D0", optional=True),
    )
)


def test_pairs_by_path_have_their_own_paths_in_the_container() -> None:
    names = ["controlC1", "pcmC1D0c", "controlC2", "pcmC2D0c", "midiC2D0", "controlC3"]
    files = [device(f"path-{n.lower()}", "path", f"/dev/snd/{n}", numbers=(116, i)) for i, n in enumerate(names)]
    found = assigned(files, Resource("x/capture", Paths(("/dev/snd/*",)), group=CAPTURE))
    first, second = found.devices["x/capture"]
    assert [(n.path, n.container_path) for n in first.devnodes] == [
        ("/dev/snd/controlC1", "/dev/snd/controlC0"),
        ("/dev/snd/pcmC1D0c", "/dev/snd/pcmC0D0c"),
    ]
    assert [n.path for n in second.devnodes] == ["/dev/snd/controlC2", "/dev/snd/pcmC2D0c", "/dev/snd/midiC2D0"]
    assert why(found, "path-controlc3") == "x/capture: there is no node for /dev/snd/pcmC*D0c to go with it"


def test_a_group_whose_member_belongs_to_another_resource_does_not_come_about() -> None:
    files = [device(f"path-{n}", "path", f"/dev/snd/{n}") for n in ("controlC1", "pcmC1D0c")]
    found = assigned(
        files, Resource("x/one", Ids(("path-pcmC1D0c",))), Resource("x/capture", Paths(("/dev/snd/*",)), group=CAPTURE)
    )
    assert ids(found, "x/capture") == []
