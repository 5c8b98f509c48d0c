"""A device's paths and values in containers, and devices for which they cannot be determined."""

import pytest
from msgspec import structs

from hostdevices import Device, DriverFiles
from resources.container_view import duplicate_path
from resources.groups import Folder
from resources.resource import DraOptions, Resource
from resources.selector import Kinds, Paths
from tests.hostdevices.made import assigned, device

STICK = device("tty-a", "tty", "/dev/ttyUSB0", attributes={"serial": "../A:1\n"}, numbers=(188, 0))
CAMERA = device("video-a", "video", "/dev/video0", "/dev/video1", numbers=(81, 0))
CARD = device("sound-pch", "sound", "/dev/snd/controlC0", "/dev/snd/pcmC0D0p", numbers=(116, 0))
TIMER = device("path-snd-timer", "path", "/dev/snd/timer", numbers=(116, 33))


def offered(selected: Device, **options: object) -> Device:
    """Return the device as a resource that selects its kind offers it."""
    resource = Resource("x/y", Kinds((selected.kind,)), **options)  # type: ignore[arg-type]  # tests name real fields
    (found,) = assigned([selected], resource).devices["x/y"]
    return found


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ({"env": {"MAC": "{mac}"}}, "env.MAC"),
        ({"annotations": {"a.b/c": "{mac}"}}, "annotations.a.b/c"),
        ({"container_path": "/dev/{mac}"}, "containerPath"),
        ({"dra": DraOptions(attributes={"a.b/mac": "{mac}", "n": 1})}, "dra.attributes.a.b/mac"),
    ],
)
def test_device_without_a_referenced_attribute_is_unavailable(option: dict[str, object], place: str) -> None:
    found = offered(STICK, **option)
    assert found.unavailable == f"it has no mac, which {place} of x/y uses"
    assert found.health.healthy


def test_device_with_too_long_dra_attribute_is_unavailable() -> None:
    options = DraOptions(attributes={"a.b/twice": "{serial}{serial}"})
    found = offered(structs.replace(STICK, attributes={"serial": "x" * 33}), dra=options)
    assert found.unavailable == "dra.attributes.a.b/twice of x/y has 66 bytes for it, and the limit is 64"


def test_group_without_a_common_attribute_is_unavailable() -> None:
    found = offered(CARD, group=Folder("/dev/snd"), env={"PLACE": "{pciBusID}"})
    assert found.unavailable == "it has no pciBusID in which all its members agree, which env.PLACE of x/y uses"


@pytest.mark.parametrize(
    ("path", "inside"),
    [("/dev/zigbee", "/dev/zigbee"), ("/dev/zigbee-{serial}", "/dev/zigbee-.._A:1_"), ("/dev/ttyUSB0", "")],
)
def test_single_node_has_the_configured_container_path(path: str, inside: str) -> None:
    """A stick's serial cannot lead to another folder."""
    (node,) = offered(STICK, container_path=path).devnodes
    assert (node.path, node.container_path) == ("/dev/ttyUSB0", inside)


def test_device_whose_container_path_leaves_its_folder_is_unavailable() -> None:
    stick = structs.replace(STICK, attributes={"serial": ".."})
    assert offered(stick, container_path="/dev/{serial}").unavailable == "containerPath of x/y would be /dev/.. for it"


def test_device_with_several_nodes_for_one_path_is_unavailable() -> None:
    assert offered(CAMERA, container_path="/dev/cam").unavailable == (
        "it has 2 nodes, and containerPath of x/y is for one; choose it with `nodes`, or set the path of each with"
        " `group.paths`"
    )
    chosen = offered(CAMERA, container_path="/dev/cam", nodes=("/dev/video0",))
    assert [(x.path, x.container_path) for x in chosen.devnodes] == [("/dev/video0", "/dev/cam")]


def test_folder_group_contains_all_nodes_of_the_folder() -> None:
    link = device("path-snd-by-path", "path", "/dev/snd/by-path/pci", numbers=(116, 0), parents=("sound-pch",))
    link = structs.replace(link, devnodes=(structs.replace(link.devnodes[0], target="/dev/snd/controlC0"),))
    whole = Folder("/dev/snd")
    resource = Resource("x/audio", Paths((whole.glob,)), group=whole, container_path="/dev/audio")
    found = assigned([link, CARD, TIMER, STICK], resource)
    (folder,) = found.devices["x/audio"]
    assert sorted(folder.children) == ["path-snd-by-path", "path-snd-timer", "sound-pch"]
    assert [(x.path, x.container_path) for x in folder.devnodes] == [
        ("/dev/snd/controlC0", "/dev/audio/controlC0"),
        ("/dev/snd/pcmC0D0p", "/dev/audio/pcmC0D0p"),
        ("/dev/snd/timer", "/dev/audio/timer"),
    ]
    renamed = structs.replace(resource, container_path="")
    assert assigned([CARD], renamed).devices["x/audio"][0].id == folder.id


def test_two_nodes_at_one_container_path_are_detected() -> None:
    other = device("tty-b", "tty", "/dev/ttyUSB1", numbers=(188, 1))
    at = [offered(x, container_path="/dev/zigbee") for x in (STICK, other)]
    assert duplicate_path(at) == "/dev/zigbee"
    assert duplicate_path([at[0], at[0]]) == ""
    shared = [device(x, "vfio", "/dev/vfio/vfio", numbers=(10, 196)) for x in "ab"]
    assert duplicate_path(shared) == ""


@pytest.mark.parametrize(
    ("name", "unassigned_reason"),
    [
        ("v.example/gpu={mac}", "it has no mac, which cdiDevices of x/y uses"),
        (
            "v.example/gpu={serial}",
            "cdiDevices would be 'v.example/gpu=../A:1' for it, which is not the name of a CDI device",
        ),
        ("v.example/gpu={name}", ""),
    ],
)
def test_device_with_invalid_cdi_name_is_unavailable(name: str, unassigned_reason: str) -> None:
    stick = structs.replace(STICK, attributes={**STICK.attributes, "name": "ttyUSB0"})
    assert offered(stick, cdi_devices=(name,)).unavailable == unassigned_reason


@pytest.mark.parametrize(
    ("files", "unassigned_reason"),
    [
        (None, "`userspace: nvidia` of x/y is for GPUs that use this driver"),
        (DriverFiles(problem="two versions"), "two versions"),
        (DriverFiles(), ""),
    ],
)
def test_device_without_driver_files_is_unavailable(files: DriverFiles | None, unassigned_reason: str) -> None:
    assert offered(structs.replace(STICK, driver_files=files), userspace="nvidia").unavailable == unassigned_reason
