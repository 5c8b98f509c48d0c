"""Which resource owns which device, and why the other devices have no resource."""

import pytest

from hostdevices import Health, device_id
from resources.groups import SameAttribute
from resources.presets import preset
from resources.resource import Resource
from resources.selector import AllOf, AnyOf, Attribute, Ids, Kinds, Paths
from tests.hostdevices.made import assigned, device, ids, unassigned_reason


def test_first_resource_that_selects_a_device_owns_it() -> None:
    found = assigned(
        [device("a", "gpu"), device("b", "gpu")],
        Resource("x/first", Ids(("a",))),
        Resource("x/second", Kinds(("gpu",))),
    )
    assert (ids(found, "x/first"), ids(found, "x/second")) == (["a"], ["b"])
    assert found.owners == {"a": "x/first", "b": "x/second"}
    assert found.rest == ()


def test_resource_without_devices_has_empty_entry() -> None:
    assert assigned([], Resource("x/kvm", preset("kvm"))).devices == {"x/kvm": ()}


def test_whole_is_refused_when_another_resource_owns_a_part() -> None:
    devices = [device("card", "gpu", parents=("pci-1",)), device("pci-1", "pci")]
    found = assigned(devices, Resource("x/gpu", Kinds(("gpu",))), Resource("x/pci", Kinds(("pci",))))
    assert ids(found, "x/pci") == []
    assert unassigned_reason(found, "pci-1") == "x/pci: x/gpu owns a part of it, card"


def test_owner_of_a_whole_owns_and_allocates_all_its_parts() -> None:
    devices = [
        device("tty", "tty", "/dev/ttyUSB0", parents=("usb-1",), health=Health(False, "no answer")),
        device("usb-1", "usb", "/dev/bus/usb/001/002", parents=("pci-1",), numbers=(189, 1)),
        device("pci-1", "pci"),
    ]
    found = assigned(devices, Resource("x/pci", Kinds(("pci",))), Resource("x/tty", Kinds(("tty",))))
    assert ids(found, "x/tty") == []
    (whole,) = found.devices["x/pci"]
    assert (whole.id, whole.kind, whole.children) == ("pci-1", "pci", ("usb-1", "tty"))
    assert [node.path for node in whole.devnodes] == ["/dev/bus/usb/001/002", "/dev/ttyUSB0"]
    assert whole.health == Health(False, "tty: no answer")
    assert found.owners == {"pci-1": "x/pci", "usb-1": "x/pci", "tty": "x/pci"}
    assert found.rest == ()


def test_parts_of_one_whole_can_have_different_owners() -> None:
    devices = [device("tty", "tty", parents=("usb-1",)), device("video", "video", parents=("usb-1",))]
    found = assigned(devices, Resource("x/tty", Kinds(("tty",))), Resource("x/video", Kinds(("video",))))
    assert (ids(found, "x/tty"), ids(found, "x/video")) == (["tty"], ["video"])


def test_physical_and_virtual_functions_of_two_resources_are_sriov_peers() -> None:
    devices = [device("nic-pf", "nic", parents=("pci-0000-3b-00-0",)), device("nic-x", "nic", parents=("pci-9",))]
    devices += [device(f"vf-{i}", "vf", attributes={"pf": "0000:3b:00.0"}) for i in range(2)]
    found = assigned(devices, Resource("x/nic", Kinds(("nic",))), Resource("x/vf", Kinds(("vf",))))
    assert {x.id: x.sriov_peers for offered in found.devices.values() for x in offered} == {
        "nic-pf": ("vf-0", "vf-1"),
        "nic-x": (),
        "vf-0": ("nic-pf",),
        "vf-1": ("nic-pf",),
    }


def test_group_of_virtual_functions_has_all_physical_functions_as_peers() -> None:
    addresses = ("0000:3b:00.0", "0000:5e:00.0")
    devices = [device(f"pf-{i}", "nic", parents=(device_id("pci", x),)) for i, x in enumerate(addresses)]
    devices += [device(f"vf-{i}", "vf", attributes={"pf": x, "rail": "a"}) for i, x in enumerate(addresses)]
    pairs = Resource("x/pair", Kinds(("vf",)), group=SameAttribute("rail"))
    found = assigned(devices, Resource("x/nic", Kinds(("nic",))), pairs)
    (pair,) = found.devices["x/pair"]
    assert (pair.children, pair.sriov_peers) == (("vf-0", "vf-1"), ("pf-0", "pf-1"))
    assert [x.sriov_peers for x in found.devices["x/nic"]] == [("vf-0", pair.id), ("vf-1", pair.id)]
    assert [x.offered_peers for x in found.devices["x/nic"]] == [(pair.id,), (pair.id,)]


def test_resource_prefers_a_whole_to_its_parts() -> None:
    devices = [device("a-part", "gpu", parents=("the-whole",)), device("the-whole", "pci")]
    found = assigned(devices, Resource("x/all", AllOf(())))
    assert [(x.id, x.children) for x in found.devices["x/all"]] == [("the-whole", ("a-part",))]


def test_only_one_of_two_wholes_with_a_common_part_is_offered() -> None:
    devices = [device("pci-0", "pci"), device("pci-1", "pci"), device("vfio", "vfio", parents=("pci-0", "pci-1"))]
    found = assigned(devices, Resource("x/pci", Kinds(("pci",))))
    assert [(x.id, x.children) for x in found.devices["x/pci"]] == [("pci-0", ("vfio",))]
    assert unassigned_reason(found, "pci-1") == "x/pci: vfio belongs to another device of x/pci"


def test_node_with_two_paths_is_allocated_once() -> None:
    port = device("tty-ftdi", "tty", "/dev/ttyUSB0", numbers=(188, 0))
    link = device("path-by-id", "path", "/dev/serial/by-id/usb-ftdi", numbers=(188, 0), parents=("tty-ftdi",))
    found = assigned([port, link], Resource("x/serial", Kinds(("tty",))))
    assert [node.path for node in found.devices["x/serial"][0].devnodes] == ["/dev/ttyUSB0"]


def test_path_selector_prefers_a_device_to_the_path_of_its_node() -> None:
    port = device("tty-ftdi", "tty", "/dev/ttyUSB0", numbers=(188, 0))
    file = device("path-ttyusb0", "path", "/dev/ttyUSB0", numbers=(188, 0), parents=("tty-ftdi",))
    found = assigned([port, file], Resource("x/serial", Paths(("/dev/ttyUSB*",))))
    assert ids(found, "x/serial") == ["tty-ftdi"]


def test_path_selector_of_one_node_excludes_its_device() -> None:
    card = device("sound-pch", "sound", "/dev/snd/controlC0", "/dev/snd/pcmC0D0c", numbers=(116, 0))
    file = device("path-snd-controlc0", "path", "/dev/snd/controlC0", numbers=(116, 0), parents=("sound-pch",))
    found = assigned(
        [card, file], Resource("x/mixer", Paths(("/dev/snd/controlC0",))), Resource("x/sound", Kinds(("sound",)))
    )
    assert (ids(found, "x/mixer"), ids(found, "x/sound")) == (["path-snd-controlc0"], [])
    assert unassigned_reason(found, "sound-pch") == "x/sound: x/mixer owns a part of it, path-snd-controlc0"


def test_dangerous_device_is_offered_only_by_dangerous_resource() -> None:
    disk = device("disk", "block", "/dev/sda", node_kind="b", numbers=(8, 0))
    everything = Resource("x/all", AllOf(()))
    assert "only a resource with `dangerous: true` may offer it" in unassigned_reason(
        assigned([disk], everything), "disk"
    )
    found = assigned([disk], everything, Resource("x/disk", preset("block"), dangerous=True))
    assert ids(found, "x/disk") == ["disk"]


def test_whole_with_a_dangerous_part_is_dangerous() -> None:
    devices = [
        device("stick", "usb", "/dev/bus/usb/001/002", numbers=(189, 1)),
        device("disk", "block", "/dev/sda", node_kind="b", parents=("stick",)),
    ]
    found = assigned(devices, Resource("x/usb", Kinds(("usb",))))
    assert unassigned_reason(found, "stick").startswith("x/usb: its part disk is dangerous: /dev/sda is a block device")


@pytest.mark.parametrize("dangerous", [False, True])
def test_uplink_and_its_function_are_never_offered(dangerous: bool) -> None:
    devices = [
        device("card", "pci"),
        device("nic-1", "nic", attributes={"uplink": True}, parents=("card",)),
    ]
    for kind, words in (
        ("nic", "it carries a default route"),
        ("pci", "its part nic-1 cannot be offered: it car"),
    ):
        found = assigned(devices, Resource(f"x/{kind}", Kinds((kind,)), dangerous=dangerous))
        (refused,) = (each for each in found.rest if each.is_refused)
        assert refused.reason.startswith(f"x/{kind}: {words}")
        assert not found.owners


def test_only_nodes_matching_the_option_are_allocated() -> None:
    gpu = device("gpu", "gpu", "/dev/dri/card0", "/dev/dri/renderD128")
    found = assigned([gpu], Resource("x/gpu", Kinds(("gpu",)), nodes=("/dev/dri/renderD*",)))
    assert [node.path for node in found.devices["x/gpu"][0].devnodes] == ["/dev/dri/renderD128"]


def test_device_without_matching_nodes_is_unavailable() -> None:
    """Interfaces, functions, and devices of another program's CDI spec can be used without nodes."""
    nodes = ("/dev/dri/rendr*",)
    gpu, bare = device("gpu", "gpu", "/dev/dri/card0", "/dev/dri/renderD128"), device("bare", "gpu")
    function = device("function", "pci", "/dev/infiniband/uverbs0")
    found = assigned([gpu, bare, function], Resource("x/gpu", Kinds(("gpu", "pci")), nodes=nodes))
    assert {x.id: x.unavailable for x in found.devices["x/gpu"]} == {
        "gpu": "`nodes` of x/gpu matches none of its nodes, /dev/dri/card0, /dev/dri/renderD128",
        "bare": "",
        "function": "",
    }
    described = Resource("x/gpu", Kinds(("gpu",)), nodes=nodes, cdi_devices=("a.b/c=d",))
    assert assigned([gpu], described).devices["x/gpu"][0].unavailable == ""


def test_health_policy_present_ignores_faults() -> None:
    nic = device("nic", "nic", health=Health(False, "no carrier"))
    strict = assigned([nic], Resource("x/nic", preset("nic")))
    present = assigned([nic], Resource("x/nic", preset("nic"), health="present"))
    assert strict.devices["x/nic"][0].health == Health(False, "no carrier")
    assert present.devices["x/nic"][0].health.healthy


def test_unassigned_device_has_reasons_of_resources_for_its_kind() -> None:
    resources = (
        Resource("x/kvm", preset("kvm")),
        Resource("x/amd", preset("amd-gpu")),
        Resource("x/gpu", AnyOf((Kinds(("accel",)), AllOf((Kinds(("gpu",)), Attribute("vendor", ("8086",))))))),
    )
    found = assigned([device("g", "gpu", attributes={"vendor": "10de"}), device("n", "nic")], *resources)
    assert unassigned_reason(found, "g") == "x/amd: its vendor is 10de, not 1002; x/gpu: its vendor is 10de, not 8086"
    assert unassigned_reason(found, "n") == "no resource selects devices of kind nic"


def test_unassigned_device_has_reasons_of_at_most_two_resources() -> None:
    resources = [Resource(f"x/{name}", preset(name)) for name in ("kvm", "fuse", "tun", "sev")]
    found = assigned([device("misc-autofs", attributes={"name": "autofs"})], *resources)
    assert unassigned_reason(found, "misc-autofs") == (
        "x/kvm: its name is autofs, not kvm; x/fuse: its name is autofs, not fuse; nor do 2 more resources select it"
    )
