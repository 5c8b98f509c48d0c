"""Allocate over the wire: what a container gets, and each reason for a refusal."""

import asyncio
import shutil
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from checkpoint import Ledger
from checkpoint.holdings import UnitEntry
from deviceplugin import Paths, container_record
from deviceplugin.lifecycle import Timings
from grpcunix import Client, RpcError, Status
from hostdevices import AttributeValue, Device, Devnode, Health
from hostdevices.readers import paths_reader
from hostdevices.scan import scan
from kubelet.rpc import connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.assignment import assign
from resources.resource import Mount, NodeAccess, Resource
from resources.selector import Ids, Kinds
from resources.selector import Paths as PathsSelector
from resources.unit_names import unit_names
from tests.checkpoint.build import claimed, opened
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end, refusal, until_listed
from tests.hostdevices.tree import Tree


async def test_container_gets_nodes_environment_mounts_and_annotations(start: StartPlugins, paths: Paths) -> None:
    offered = resource(
        permissions="r",
        env={"FUSE": "{devnodes} {name} {{}}"},
        mounts=(Mount("/opt/lib", "/usr/lib/vendor"),),
        annotations={"example.com/ids": "{ids}"},
    )
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([offered])
        await kubelet.lists.get()
        assert await allocate(kubelet, "misc-fuse") == api.ContainerAllocateResponse(
            envs={"NODEPLUG_EXAMPLE_COM_FUSE": "misc-fuse", "FUSE": "/dev/fuse fuse {}"},
            mounts=[api.Mount(host_path="/opt/lib", container_path="/usr/lib/vendor", read_only=True)],
            devices=[api.DeviceSpec(container_path="/dev/fuse", host_path="/dev/fuse", permissions="r")],
            annotations={"example.com/ids": "misc-fuse"},
            cdi_devices=[api.CDIDevice(name="example.com/fuse=misc-fuse")],
        )


async def test_cdi_response_has_a_device_name_that_the_spec_describes(start: StartPlugins, paths: Paths) -> None:
    offered = resource(cdi=True, access=NodeAccess(uid=1000, gid=44, mode=0o660))
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([offered])
        await kubelet.lists.get()
        response = await allocate(kubelet, "misc-fuse")
        assert not response.devices
        assert [device.name for device in response.cdi_devices] == ["example.com/fuse=misc-fuse"]
        (spec,) = (path.read_text() for path in paths.cdi.glob("*.json"))
        assert '"name":"misc-fuse"' in spec.replace(" ", "")
        assert '"gid":44' in spec.replace(" ", "")


async def test_default_response_has_nodes_and_cdi_names(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(), resource("kvm", cdi=False)])
        await kubelet.lists.get()
        await kubelet.lists.get()
        kubelet.endpoint = kubelet.endpoint_of("example.com/fuse")
        response = await allocate(kubelet, "misc-fuse")
        assert [node.host_path for node in response.devices] == ["/dev/fuse"]
        assert [device.name for device in response.cdi_devices] == ["example.com/fuse=misc-fuse"]
        kubelet.endpoint = kubelet.endpoint_of("example.com/kvm")
        assert not (await allocate(kubelet, "misc-kvm")).cdi_devices


async def test_default_response_has_only_nodes_when_specs_cannot_be_written(start: StartPlugins, paths: Paths) -> None:
    paths.cdi.touch()
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        response = await allocate(kubelet, "misc-fuse")
        assert (len(response.devices), len(response.cdi_devices)) == (1, 0)


async def test_lease_is_on_disk_when_the_response_arrives(
    start: StartPlugins, paths: Paths, ledger: Ledger, tmp_path: Path
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        response = await allocate(kubelet, "misc-fuse")
        shutil.copytree(tmp_path / "state", tmp_path / "as-if-killed-now")
    restarted = await opened(tmp_path / "as-if-killed-now", "this-boot")
    (lease,) = restarted.leases()
    record = container_record.decode(lease.record)
    assert record is not None
    assert (lease.unit, record.response) == ("misc-fuse", response.SerializeToString(deterministic=True))
    await restarted.close()


async def test_repeated_request_gets_the_same_response_and_one_lease(
    start: StartPlugins, paths: Paths, ledger: Ledger
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(shares=4)])
        await kubelet.lists.get()
        answers = await asyncio.gather(*(allocate(kubelet, "misc-fuse.1") for _ in range(20)))
        assert all(answer == answers[0] for answer in answers)
        assert [lease.unit for lease in ledger.leases()] == ["misc-fuse.1"]


async def test_ten_thousand_shares_are_allocated_in_one_response(
    start: StartPlugins, paths: Paths, ledger: Ledger
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(shares=10_000)])
        await kubelet.lists.get()
        response = await allocate(kubelet, *(f"misc-fuse.{n}" for n in range(10_000)))
        assert len(response.devices) == 1
        assert len(ledger.leases()) == 10_000


async def test_invalid_request_is_refused_with_the_device_ids(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        invalid = Status.INVALID_ARGUMENT
        assert await refusal(kubelet) == (
            invalid,
            "example.com/fuse: the request names no device; request at least one",
        )
        code, text = await refusal(kubelet, "misc-kvm")
        assert (code, "device misc-kvm is not offered here" in text) == (invalid, True)
        code, text = await refusal(kubelet, "misc-fuse", "misc-fuse", "misc-kvm")
        assert (code, "device misc-fuse is requested more than once" in text) == (invalid, True)
        code, text = await refusal(kubelet, *(f"x{n}" for n in range(10_000)))
        assert (code, "devices x0, x1, x2, x3, x4 and 9995 more are not" in text) == (invalid, True)


@pytest.mark.parametrize("method", ["Allocate", "PreStartContainer"])
async def test_unknown_long_id_is_abbreviated_in_the_refusal(
    start: StartPlugins, paths: Paths, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    unit = "\n" + "x" * 3_900_000
    requests = {
        "Allocate": api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[unit])]),
        "PreStartContainer": api.PreStartContainerRequest(devices_ids=[unit]),
    }
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        with pytest.raises(RpcError, match=r"device \\nx{99}\.\.\. ") as error:
            await kubelet.call(method, requests[method])
        assert len(str(error.value)) < 500
        assert max(len(record.getMessage()) for record in caplog.records) < 500


@pytest.mark.parametrize("change", ["gone", "renumbered"])
async def test_missing_or_renumbered_node_is_refused(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, change: str
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        if change == "gone":
            made_up.remove_node("fuse")
        else:
            made_up.renumber("fuse", 77)
        code, text = await refusal(kubelet, "misc-fuse")
        assert code is Status.FAILED_PRECONDITION
        assert "device misc-fuse changed since it was advertised: /dev/fuse is" in text


async def test_unhealthy_device_is_refused_with_its_reason(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource()])
        await kubelet.lists.get()
        unhealthy = replace(made_up.devices()["misc-fuse"], health=Health(False, "too hot: 105 C"))
        side.update({"example.com/fuse": (unhealthy,)})
        assert (await kubelet.lists.get())[0].health == "Unhealthy"
        assert await refusal(kubelet, "misc-fuse") == (
            Status.FAILED_PRECONDITION,
            "device misc-fuse is unhealthy: too hot: 105 C",
        )


async def test_second_share_of_a_device_is_refused_under_policy_distinct(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(shares=4, preferred="distinct")])
        await kubelet.lists.get()
        code, text = await refusal(kubelet, "misc-fuse.0", "misc-fuse.1")
        assert (code, "its policy is distinct" in text) == (Status.FAILED_PRECONDITION, True)


async def test_device_held_by_another_resource_is_refused(start: StartPlugins, paths: Paths, ledger: Ledger) -> None:
    await ledger.grant([claimed("misc-fuse", "u1", "example.com/other")])
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        code, text = await refusal(kubelet, "misc-fuse")
        assert code is Status.FAILED_PRECONDITION
        assert "example.com/other (dra) has allocated misc-fuse to claim/default/u1/u1" in text
        await ledger.end(ledger.leases())
        await allocate(kubelet, "misc-fuse")


async def test_new_virtual_function_of_a_claimed_card_is_refused(
    start: StartPlugins, paths: Paths, ledger: Ledger, made_up: MadeUpHost
) -> None:
    """The claim's lease names only the functions that existed when it was granted."""
    tree = Tree(made_up.root)
    card = tree.pci("0000:3b:00.0", pci_class="020000", sriov_totalvfs=2)
    await ledger.grant([claimed("pci-0000-3b-00-0", "whole")])
    tree.virtual_function(card, "0000:3b:00.1", 0, pci_class="020000")
    virtual = resource("virtual", selector=Ids(("pci-0000-3b-00-1",)))
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([virtual])
        side.update(assign(scan(made_up.host), [virtual]).devices)
        await until_listed(kubelet, {"pci-0000-3b-00-1": "Unhealthy"})
        code, text = await refusal(kubelet, "pci-0000-3b-00-1")
        assert (code, "has allocated pci-0000-3b-00-0 to claim/default/whole" in text) == (
            Status.FAILED_PRECONDITION,
            True,
        )
        await ledger.end(ledger.leases())
        await ledger.grant([claimed("pci-0000-3b-00-0/s", "part", exclusive="", shared="pci-0000-3b-00-0")])
        assert "has allocated pci-0000-3b-00-0/s to" in (await refusal(kubelet, "pci-0000-3b-00-1"))[1]
        await ledger.end(ledger.leases())
        await until_listed(kubelet, {"pci-0000-3b-00-1": "Healthy"})
        await allocate(kubelet, "pci-0000-3b-00-1")


async def test_request_for_several_containers_is_granted_entirely_or_not_at_all(
    start: StartPlugins, paths: Paths, ledger: Ledger
) -> None:
    def for_two(*unit_ids: str) -> api.AllocateRequest:
        return api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[u]) for u in unit_ids])

    await ledger.grant([claimed("misc-kvm", "u1", "example.com/other")])
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource("misc", selector=Kinds(("misc",)))])
        await kubelet.lists.get()
        for second, words in (
            ("misc-kvm", "claim/default/u1/u1"),
            ("x", "not offered"),
            ("misc-fuse", "requested twice"),
        ):
            with pytest.raises(RpcError, match=words):
                await kubelet.call("Allocate", for_two("misc-fuse", second))
            assert [lease.unit for lease in ledger.leases()] == ["misc-kvm"]
        await ledger.end(ledger.leases())
        response = await kubelet.call("Allocate", for_two("misc-fuse", "misc-kvm"))
        assert [x.devices[0].host_path for x in response.container_responses] == ["/dev/fuse", "/dev/kvm"]
        assert [lease.unit for lease in ledger.leases()] == ["misc-fuse", "misc-kvm"]


async def test_allocate_is_unavailable_while_the_database_is_locked(
    start: StartPlugins, paths: Paths, tmp_path: Path
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        (database,) = (tmp_path / "state").glob("*.sqlite3")
        with closing(sqlite3.connect(database, isolation_level=None)) as intruder:
            intruder.execute("begin exclusive")  # a locked file is as useless as a full disk
            code, text = await refusal(kubelet, "misc-fuse")
            intruder.execute("rollback")
        assert code is Status.UNAVAILABLE
        assert "example.com/fuse" in text
        await allocate(kubelet, "misc-fuse")


async def test_device_that_needs_cdi_is_unhealthy_until_its_spec_is_written(start: StartPlugins, paths: Paths) -> None:
    paths.cdi.touch()
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(cdi=True)])
        assert [x.health for x in await kubelet.lists.get()] == ["Unhealthy"]
        code, text = await refusal(kubelet, "misc-fuse")
        assert (code, "cannot write CDI specs" in text) == (Status.UNAVAILABLE, True)
        paths.cdi.unlink()  # no event reports this
        assert [x.health for x in await kubelet.lists.get()] == ["Healthy"]
        await allocate(kubelet, "misc-fuse")


async def test_preferred_allocation_includes_the_required_unit_first(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(shares=4)])
        await kubelet.lists.get()
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=["misc-fuse.3", "misc-fuse.1", "misc-fuse.2"],
            must_include_deviceIDs=["misc-fuse.3"],
            allocation_size=2,
        )
        response = await kubelet.call(
            "GetPreferredAllocation", api.PreferredAllocationRequest(container_requests=[request])
        )
        assert list(response.container_responses[0].deviceIDs) == ["misc-fuse.3", "misc-fuse.1"]


async def test_device_is_refused_when_its_configured_link_has_another_target(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    by_id = made_up.root / "dev/by-id"
    by_id.mkdir()
    (by_id / "stick").symlink_to("../fuse")
    reader = paths_reader(["/dev/by-id/*"])
    offered = Resource("example.com/stick", PathsSelector(("/dev/by-id/*",)))
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([offered])
        await kubelet.lists.get()
        (device,) = scan(made_up.host, [reader]).devices.values()
        side.update({offered.name: (device,)})
        (listed,) = await kubelet.lists.get()
        response = await allocate(kubelet, listed.ID)
        assert [node.container_path for node in response.devices] == ["/dev/by-id/stick"]
        (by_id / "stick").unlink()
        (by_id / "stick").symlink_to("../kvm")
        code, text = await refusal(kubelet, listed.ID)
        assert (code, "changed since it was advertised" in text) == (Status.FAILED_PRECONDITION, True)
        (by_id / "stick").unlink()
        (by_id / "stick").symlink_to("/etc/passwd")
        code, text = await refusal(kubelet, listed.ID)
        assert (code, "gone now" in text) == (Status.FAILED_PRECONDITION, True)


async def test_lost_lease_is_restored_from_an_unreadable_stored_response(start: StartPlugins) -> None:
    side = await start([resource("fuse")])
    entry = UnitEntry("uid-1", "c", b"\xff\xff no message")
    (found,) = side.plugins.restore_units("example.com/fuse", ["misc-fuse"], entry)
    assert (found.unit, found.exclusive) == ("misc-fuse", frozenset({"misc-fuse"}))


async def test_lost_lease_of_a_removed_device_is_restored_with_its_nodeplug_id(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource("fuse", ids="path", cdi=False)])
        await kubelet.lists.get()
        response = await allocate(kubelet, "/dev/fuse")
        made_up.unplug("fuse")
        side.update()
        entry = UnitEntry("uid-1", "c", response.SerializeToString())
        (found,) = side.plugins.restore_units("example.com/fuse", ["/dev/fuse"], entry)
        assert (found.unit, found.exclusive) == ("/dev/fuse", frozenset({"misc-fuse"}))


async def test_lost_lease_is_restored_with_former_members_and_parents(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource("fuse")])
        await kubelet.lists.get()
        fuse, name = made_up.devices()["misc-fuse"], "example-com-fuse-all"
        side.update({"example.com/fuse": (replace(fuse, id=name, children=("misc-fuse", "misc-kvm"), parents=("p",)),)})
        await kubelet.lists.get()
        response = await allocate(kubelet, name)
        side.update({"example.com/fuse": (replace(fuse, id=name, children=("misc-fuse",)),)})
        (found,) = side.plugins.restore_units(
            "example.com/fuse", [name], UnitEntry("u", "c", response.SerializeToString())
        )
        assert found.exclusive == {name, "misc-fuse", "misc-kvm"}
        assert found.shared == {"p"}


async def test_restored_leases_of_one_container_share_one_record(
    start: StartPlugins, paths: Paths, ledger: Ledger
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(selector=Kinds(("misc",)))])
        await kubelet.lists.get()
        units = ("misc-fuse", "misc-kvm")
        answer = await allocate(kubelet, *units)
        entry = UnitEntry("uid", "c", answer.SerializeToString())
        found = side.plugins.restore_units("example.com/fuse", units, entry)
        assert {x.record for x in found} == {x.record for x in ledger.leases()}


class CountedAttributes(dict[str, AttributeValue]):
    """Attributes that count their reads."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        CountedAttributes.reads += 1
        return super().get(key, default)


async def test_restoring_units_reads_the_attributes_of_each_device_once(start: StartPlugins) -> None:
    """There can be thousands, and the search blocks the loop."""
    side = await start([resource("fuse")])
    there = {f"x-{n}": Device(f"x-{n}", "x", f"x{n}", attributes=CountedAttributes(uuid=f"GPU-{n}")) for n in range(20)}
    side.presence.update(there, ())
    CountedAttributes.reads = 0
    found = side.plugins.restore_units("example.com/fuse", [f"GPU-{n}" for n in range(20)], None)
    assert [x.exclusive for x in found] == [{f"GPU-{n}", f"x-{n}"} for n in range(20)]
    once, CountedAttributes.reads = CountedAttributes.reads, 0
    [*unit_names(there["x-0"])]
    assert once == 20 * CountedAttributes.reads


async def test_malformed_annotation_of_a_stored_response_is_ignored(start: StartPlugins) -> None:
    side = await start([resource("fuse", ids="path")])
    kept = api.ContainerAllocateResponse(envs={"NODEPLUG_EXAMPLE_COM_FUSE": "/dev/fuse"})
    kept.annotations["devices.nodeplug.dev/example.com_fuse"] = '{"id":'
    (found,) = side.plugins.restore_units(
        "example.com/fuse", ["/dev/fuse"], UnitEntry("u", "c", kept.SerializeToString())
    )
    assert found.exclusive == {"misc-fuse"}


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["waiting", "cancelled"])
async def test_waiting_allocate_is_answered_after_a_new_stream_unless_cancelled(
    start: StartPlugins, paths: Paths, tmp_path: Path, is_cancelled: bool
) -> None:
    """The old list's server stops. A waiting caller is answered first; nothing is leased for a caller that left."""
    ledger = Ledger(tmp_path / "another", "this-boot")
    await ledger.read()
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["misc-fuse"])])
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource()], on=ledger, timings=Timings(answer=30.0))
        await kubelet.lists.get()
        async with connect(paths.device_plugins / kubelet.endpoint) as channel:
            client = Client(channel, api.DESCRIPTOR.services_by_name["DevicePlugin"])
            await client.call("GetDevicePluginOptions", api.Empty())
            asked = asyncio.ensure_future(client.call("Allocate", request))  # waits: an older daemon owns the state
            await asyncio.ensure_future(client.call("GetDevicePluginOptions", api.Empty()))  # Allocate has arrived
            if is_cancelled:
                asked.cancel()
                await asyncio.wait([asked])
            await kubelet.cut_streams()
            await kubelet.lists.get()
            await ledger.take()
            if not is_cancelled:
                ((node,),) = [found.devices for found in (await asked).container_responses]
                assert node.host_path == "/dev/fuse"
        assert [lease.unit for lease in ledger.leases()] == ([] if is_cancelled else ["misc-fuse"])
        assert [node.host_path for node in (await allocate(kubelet, "misc-fuse")).devices] == ["/dev/fuse"]
    await side.stop()
    await ledger.close()


async def test_waiting_allocate_gets_the_devices_present_when_the_ledger_is_taken(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "another", "this-boot")
    await ledger.read()
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(), resource("kvm")], on=ledger)
        for _ in range(2):
            await kubelet.lists.get()
        services = api.DESCRIPTOR.services_by_name["DevicePlugin"]
        asked: list[asyncio.Future[api.AllocateResponse]] = []
        async with AsyncExitStack() as stack:
            for name in ("fuse", "kvm"):
                request = api.AllocateRequest(
                    container_requests=[api.ContainerAllocateRequest(devices_ids=[f"misc-{name}"])]
                )
                endpoint = paths.device_plugins / kubelet.endpoint_of(f"example.com/{name}")
                client = Client(await stack.enter_async_context(connect(endpoint)), services)
                await client.call("GetDevicePluginOptions", api.Empty())
                asked.append(asyncio.ensure_future(client.call("Allocate", request)))
                await asyncio.ensure_future(client.call("GetDevicePluginOptions", api.Empty()))  # Allocate has arrived
            made_up.unplug("fuse")
            node = Devnode("/dev/kvm7", "c", 10, 1)
            (made_up.root / "dev/kvm7").write_text("c 10:1\n")
            kvm = made_up.devices()["misc-kvm"]
            side.update({"example.com/fuse": (), "example.com/kvm": (replace(kvm, devnodes=(node,)),)})
            await ledger.take()
            with pytest.raises(RpcError, match="misc-fuse is not offered here"):
                await asked[0]
            assert [node.host_path for node in (await asked[1]).container_responses[0].devices] == ["/dev/kvm7"]
        assert [lease.unit for lease in ledger.leases()] == ["misc-kvm"]
    await side.stop()
    await ledger.close()
