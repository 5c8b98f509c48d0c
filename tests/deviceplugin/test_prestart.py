"""PreStartContainer: a restarted container gets its own device at its current node, or does not start."""

import json

import pytest
from msgspec.structs import replace

from checkpoint import Ledger
from checkpoint.holdings import UnitEntry
from deviceplugin import Paths
from grpcunix import RpcError, Status
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.resource import CdiPolicy, NodeAccess
from resources.selector import Kinds
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import KubeletEnd, allocate, kubelet_end
from tests.running import until
from tests.threads import no_free_threads

BUS_ID = "resource.kubernetes.io/pciBusID"


async def pre_start(kubelet: KubeletEnd, *unit_ids: str) -> None:
    await kubelet.call("PreStartContainer", api.PreStartContainerRequest(devices_ids=unit_ids))


async def refusal(kubelet: KubeletEnd, *unit_ids: str) -> str:
    with pytest.raises(RpcError) as error:
        await pre_start(kubelet, *unit_ids)
    return error.value.details


def swap_nodes(made_up: MadeUpHost) -> None:
    """Exchange the nodes of the devices fuse and kvm, as if two sticks were unplugged and plugged in again."""
    for name, node, minor in (("fuse", "kvm", 1), ("kvm", "fuse", 0)):
        folder = made_up.root / "sys/devices/virtual/misc" / name
        (folder / "dev").write_text(f"10:{minor}\n")
        (folder / "uevent").write_text(f"MAJOR=10\nMINOR={minor}\nDEVNAME={node}\n")
        link = made_up.root / f"sys/dev/char/10:{minor}"
        link.unlink()
        link.symlink_to(f"../../devices/virtual/misc/{name}")


def nodes_in_specs(paths: Paths) -> dict[str, list[str]]:
    """The nodes that a runtime finds, by the devices' names."""
    specs = [json.loads(path.read_text()) for path in paths.cdi.glob("*.json")]
    return {
        f"{spec['kind']}={device['name']}": [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for spec in specs
        for device in spec["devices"]
    }


async def test_pre_start_is_requested_for_renumbered_kinds_and_for_reset(start: StartPlugins, paths: Paths) -> None:
    misc, tty = Kinds(("misc",)), Kinds(("tty",))
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start(
            [resource("kvm", selector=misc), resource("kvm2", selector=misc, reset=True), resource("tty", selector=tty)]
        )
        flags = {}
        for _ in range(3):
            request = await kubelet.requests.get()
            flags[request.resource_name] = request.options.pre_start_required
        assert flags == {"example.com/kvm": False, "example.com/kvm2": True, "example.com/tty": True}


@pytest.mark.parametrize("cdi", [False, "auto"])
async def test_container_is_refused_when_its_node_belongs_to_another_device(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, cdi: CdiPolicy
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(cdi=cdi), resource("kvm", cdi=cdi)])
        await kubelet.lists.get()
        await kubelet.lists.get()
        kubelet.endpoint = kubelet.endpoint_of("example.com/fuse")
        await allocate(kubelet, "misc-fuse")
        await pre_start(kubelet, "misc-fuse")
        swap_nodes(made_up)
        side.update()
        assert await refusal(kubelet, "misc-fuse") == (
            "example.com/fuse: the container was allocated /dev/fuse, which is misc-kvm now; its device is at /dev/kvm;"
            " delete the pod, or set `cdi: true`, with which a restarted container gets the device at its new path"
        )
        restore_nodes(made_up)
        side.update()
        await pre_start(kubelet, "misc-fuse")


def restore_nodes(made_up: MadeUpHost) -> None:
    for name, minor in (("fuse", 0), ("kvm", 1)):
        folder = made_up.root / "sys/devices/virtual/misc" / name
        (folder / "dev").write_text(f"10:{minor}\n")
        (folder / "uevent").write_text(f"MAJOR=10\nMINOR={minor}\nDEVNAME={name}\n")
        made_up.renumber(name, minor)


async def test_vhost_net_nodes_do_not_prevent_the_start(start: StartPlugins, paths: Paths, made_up: MadeUpHost) -> None:
    (made_up.root / "dev/net").mkdir()
    nodes = {"/dev/vhost-net": "10:238", "/dev/net/tun": "10:200"}
    for path, number in nodes.items():
        (made_up.root / path[1:]).write_text(f"c {number}\n")
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(vhost_net=True)])
        await kubelet.lists.get()
        answer = await allocate(kubelet, "misc-fuse")
        assert nodes.keys() < {node.host_path for node in answer.devices}
        await pre_start(kubelet, "misc-fuse")


async def test_container_is_refused_when_its_two_devices_swapped_nodes(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    """Both belong to the container, but under exchanged names."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(selector=Kinds(("misc",)), container_path="/dev/at-{name}")])
        await kubelet.lists.get()
        await allocate(kubelet, "misc-fuse", "misc-kvm")
        await pre_start(kubelet, "misc-fuse", "misc-kvm")
        swap_nodes(made_up)
        side.update()
        assert "which is misc-kvm now; its device is at /dev/kvm; delete" in await refusal(
            kubelet, "misc-fuse", "misc-kvm"
        )


async def test_restored_lease_has_the_nodes_of_the_stored_response(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, ledger: Ledger
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(selector=Kinds(("misc",)))])
        await kubelet.lists.get()
        units = ("misc-fuse", "misc-kvm")
        answer = await allocate(kubelet, *units)
        await ledger.end(ledger.leases())
        swap_nodes(made_up)
        side.update()
        entry = UnitEntry("uid", "c", answer.SerializeToString())
        await ledger.grant(side.plugins.restore_units("example.com/fuse", units, entry))
        assert "which is misc-kvm now; its device is at /dev/kvm; delete" in await refusal(kubelet, *units)


async def test_cdi_spec_has_the_old_container_path_after_a_lost_lease(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, ledger: Ledger
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource()])
        await kubelet.lists.get()
        answer = await allocate(kubelet, "misc-fuse")
        await ledger.end(ledger.leases())
        (fuse, _) = made_up.devices().values()
        side.update(
            {"example.com/fuse": (replace(fuse, devnodes=(replace(fuse.devnodes[0], container_path="/dev/x"),)),)}
        )
        await until(lambda: nodes_in_specs(paths) == {"example.com/fuse=misc-fuse": ["/dev/x"]})
        entry = UnitEntry("uid", "c", answer.SerializeToString())
        await ledger.grant(side.plugins.restore_units("example.com/fuse", ["misc-fuse"], entry))
        ledger.complete()
        await until(lambda: nodes_in_specs(paths) == {"example.com/fuse=misc-fuse": ["/dev/fuse"]})


async def test_cdi_name_resolves_to_the_current_node_of_the_device(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(cdi=True)])
        await kubelet.lists.get()
        response = await allocate(kubelet, "misc-fuse")
        assert [x.name for x in response.cdi_devices] == ["example.com/fuse=misc-fuse"]
        assert not response.devices
        assert nodes_in_specs(paths) == {"example.com/fuse=misc-fuse": ["/dev/fuse"]}
        swap_nodes(made_up)
        side.update()
        await pre_start(kubelet, "misc-fuse")
        assert nodes_in_specs(paths) == {"example.com/fuse=misc-fuse": ["/dev/kvm"]}


async def test_removed_cdi_spec_is_rewritten_before_the_container_starts(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(cdi=True)])
        await kubelet.lists.get()
        await allocate(kubelet, "misc-fuse")
        for path in paths.cdi.iterdir():
            path.unlink()
        await pre_start(kubelet, "misc-fuse")
        assert nodes_in_specs(paths)


async def test_container_is_refused_while_its_device_is_missing(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource()])
        await kubelet.lists.get()
        await allocate(kubelet, "misc-fuse")
        made_up.remove_node("fuse")
        assert "/dev/fuse is gone now" in await refusal(kubelet, "misc-fuse")
        side.presence.update({}, [])
        side.plugins.update({})
        assert "device misc-fuse is gone; the container starts when the device is back" in await refusal(
            kubelet, "misc-fuse"
        )


async def test_container_is_refused_without_a_lease_or_a_device(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        assert "device misc-fuse has no lease" in await refusal(kubelet, "misc-fuse")
        assert "names no device" in await refusal(kubelet)


async def test_container_of_a_removed_resource_still_starts(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, ledger: Ledger
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        before = await start([resource(cdi=True, access=NodeAccess(gid=44))])
        await kubelet.lists.get()
        await allocate(kubelet, "misc-fuse")
        await before.stop()
        after = await start([])
        (listed,) = await kubelet.lists.get()
        assert (listed.ID, listed.health) == ("misc-fuse", "Unhealthy")
        swap_nodes(made_up)
        assert "misc-fuse changed since it was scanned" in await refusal(kubelet, "misc-fuse")
        after.update()
        await pre_start(kubelet, "misc-fuse")
        assert nodes_in_specs(paths) == {"example.com/fuse=misc-fuse": ["/dev/kvm"]}
        (path,) = paths.cdi.glob("*.json")
        assert '"gid":44' in path.read_text().replace(" ", "")
        await ledger.end(ledger.leases())
        await kubelet.until_unregistered("example.com/fuse")
        await until(lambda: not nodes_in_specs(paths))  # no container can get the device by this spec


def make_resettable(made_up: MadeUpHost, address: str) -> None:
    function = made_up.root / "sys/devices/pci0000:00" / address
    function.mkdir(parents=True)
    (function / "reset").write_text("")
    bus = made_up.root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / address).symlink_to(f"../../../devices/pci0000:00/{address}")


async def test_pci_device_is_reset_through_sysfs(start: StartPlugins, paths: Paths, made_up: MadeUpHost) -> None:
    make_resettable(made_up, "0000:00:05.0")
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(reset=True)])
        await kubelet.lists.get()
        device = replace(made_up.devices()["misc-fuse"], attributes={BUS_ID: "0000:00:05.0"})
        side.update({"example.com/fuse": (device,)})
        await allocate(kubelet, "misc-fuse")
        await pre_start(kubelet, "misc-fuse")
        assert (made_up.root / "sys/devices/pci0000:00/0000:00:05.0/reset").read_text() == "1"


async def test_reset_without_a_free_thread_can_be_repeated(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    make_resettable(made_up, "0000:00:05.0")
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(reset=True, cdi=False)])
        await kubelet.lists.get()
        device = replace(made_up.devices()["misc-fuse"], attributes={BUS_ID: "0000:00:05.0"})
        side.update({"example.com/fuse": (device,)})
        await allocate(kubelet, "misc-fuse")
        async with no_free_threads():
            with pytest.raises(RpcError, match=r"fuse: no thread is left: can't start new thread; try again") as error:
                await pre_start(kubelet, "misc-fuse")
        assert error.value.code is Status.UNAVAILABLE
        await pre_start(kubelet, "misc-fuse")


@pytest.mark.parametrize(
    ("address", "words"),
    [("", "is not on a PCI bus and cannot be reset"), ("0000:00:06.0", "reset of 0000:00:06.0 failed: No such file")],
)
async def test_container_is_refused_when_its_device_cannot_be_reset(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, address: str, words: str
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(reset=True)])
        await kubelet.lists.get()
        device = replace(made_up.devices()["misc-fuse"], attributes={BUS_ID: address} if address else {})
        side.update({"example.com/fuse": (device,)})
        await allocate(kubelet, "misc-fuse")
        with pytest.raises(RpcError, match=words) as error:
            await pre_start(kubelet, "misc-fuse")
        assert error.value.code is Status.FAILED_PRECONDITION
