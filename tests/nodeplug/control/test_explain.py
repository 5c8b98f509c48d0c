"""`nodeplug explain`: the rule, its line in the file, and what is missing."""

from kubelet.node import Node
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest, cells

ALL = {"name": "example.com/misc", "select": {"kind": "misc", "id": "*-kvm"}}
GPS = {"name": "example.com/gps", "select": "usb-serial"}


async def test_offered_device_lists_the_outcome_of_each_rule(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE, KVM, ALL)
    await node.until(lambda: node.allocatable().get("example.com/kvm"), 30)
    for name in ("misc-kvm", "/dev/kvm", "kvm"):
        shown = (await daemon.run("explain", name)).stdout
        assert shown.startswith(f"misc-kvm is offered by example.com/kvm ({daemon.path}:4)\nnothing is missing")
    found = await daemon.json("explain", "misc-kvm")
    assert [(x["resource"], x["place"], x["outcome"], x["isOwner"]) for x in found["rules"]] == [
        ("example.com/fuse", f"{daemon.path}:3", "does not select it: its name is kvm, not fuse", False),
        ("example.com/kvm", f"{daemon.path}:4", "selects it, and is the first that can own it", True),
        ("example.com/misc", f"{daemon.path}:5", "selects it, and example.com/kvm comes first", False),
    ]


async def test_device_that_is_not_offered_has_the_reasons(daemon: DaemonUnderTest, made_up: MadeUpHost) -> None:
    made_up.add("tun", minor=9)
    await daemon.start(FUSE, {**KVM, "reset": True})
    found = await daemon.json("explain", "misc-tun")
    assert (found["summary"], found["resources"], found["devices"]) == ("is not offered", [], [])
    assert found["missing"] == [
        "example.com/fuse: its name is tun, not fuse; example.com/kvm: its name is tun, not kvm"
    ]
    found = await daemon.json("explain", "/dev/kvm")
    assert found["missing"] == ["example.com/kvm: it is on no PCI bus and cannot be reset"]
    assert found["rules"][1]["outcome"] == "selects it, and cannot own it: it is on no PCI bus and cannot be reset"
    found = await daemon.json("explain", "example.com/kvm")
    assert found["missing"][-1] == "1 device here would match its selector, and it cannot own any of them: see below"
    assert found["near"][0] == {"device": "misc-kvm", "reason": "it is on no PCI bus and cannot be reset"}


async def test_device_goes_to_the_next_resource_that_can_own_it(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start({**KVM, "reset": True}, ALL)
    await node.until(lambda: node.allocatable().get("example.com/misc"), 30)
    why = "it is on no PCI bus and cannot be reset"
    found = await daemon.json("explain", "misc-kvm")
    assert [x["outcome"] for x in found["rules"]] == [
        f"selects it, and cannot own it: {why}",
        "selects it, and is the first that can own it",
    ]
    assert {"device": "misc-kvm", "reason": why} in (await daemon.json("explain", "example.com/kvm"))["near"]


async def test_missing_parts_of_devices_and_resources_are_listed(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start({**FUSE, "shares": 1}, GPS)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    for name in ("misc-fuse", "example.com/fuse"):
        found = await daemon.json("explain", name)
        assert found["missing"] == ["all of it is leased"]
        assert [x["unit"] for x in found["leases"]] == ["misc-fuse"]
    found = await daemon.json("explain", "example.com/gps")
    assert found["summary"] == f"selects usb-serial ({daemon.path}:4), through device-plugin"
    assert found["missing"] == ["it selects no device here"]
    await node.stop()
    missing = (await daemon.json("explain", "example.com/gps"))["missing"]
    assert any(x.startswith("example.com/gps is not registered with the kubelet (device-plugin)") for x in missing)


async def test_resource_lists_devices_that_it_does_not_select(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    assert ["misc-kvm", "its", "name", "is", "kvm,", "not", "fuse"] in cells(
        (await daemon.run("explain", "example.com/fuse")).stdout
    )


async def test_unknown_name_is_an_error_with_a_suggestion(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    result = await daemon.run("explain", "misc-fusd")
    assert result.exit_code == 1
    assert result.stderr == "Error: there is no device or resource misc-fusd here; did you mean misc-fuse?\n"


async def test_resource_for_other_nodes_is_explained(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE, KVM)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    daemon.write(KVM, {**FUSE, "onNodes": "another"}, {**GPS, "onNodes": "another"})
    assert (await daemon.run("reload")).exit_code == 0
    missing = ["it is for other nodes (`onNodes` or `nodeSelector`)"]
    found = await daemon.json("explain", "example.com/gps")
    assert (found["summary"], found["missing"]) == (f"is in the configuration ({daemon.path}:5)", missing)
    found = await daemon.json("explain", "example.com/fuse")
    assert found["summary"] == (
        f"is in the configuration ({daemon.path}:4); it is served until the pods that have its devices end"
    )
    assert (found["missing"], len(found["leases"])) == (missing, 1)
