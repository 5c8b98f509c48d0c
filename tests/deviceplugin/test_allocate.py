"""Allocate over the wire: what a container gets, and every reason to refuse."""

import asyncio
import shutil
import sqlite3
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from checkpoint import Lease, Ledger
from deviceplugin import Paths
from deviceplugin.lifecycle import Timings
from hostdevices import Device, Health
from hostdevices.readers import paths_reader
from hostdevices.resource import Mount, NodeAccess, Resource
from hostdevices.scan import scan
from hostdevices.selector import Paths as PathsSelector
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import KubeletEnd, kubelet_end


async def allocate(kubelet: KubeletEnd, *unit_ids: str) -> api.ContainerAllocateResponse:
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=unit_ids)])
    response: api.AllocateResponse = await kubelet.call("Allocate", request)
    return response.container_responses[0]


async def refusal(kubelet: KubeletEnd, *unit_ids: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await allocate(kubelet, *unit_ids)
    return error.value.code(), error.value.details() or ""


async def test_a_container_gets_nodes_environment_mounts_and_annotations(start: StartPlugins, paths: Paths) -> None:
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
        )


async def test_with_cdi_the_nodes_travel_by_a_name_that_the_spec_explains(start: StartPlugins, paths: Paths) -> None:
    offered = resource(cdi=True, access=NodeAccess(uid=1000, gid=44, mode=0o660))
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([offered])
        await kubelet.lists.get()
        response = await allocate(kubelet, "misc-fuse")
        assert not response.devices
        (name,) = (device.name for device in response.cdi_devices)
        kind, _, device = name.partition("=")
        assert kind == "example.com/fuse"
        (spec,) = (path.read_text() for path in paths.cdi.glob("*.json"))
        assert f'"{device}"' in spec
        assert '"gid":44' in spec.replace(" ", "")


async def test_a_cdi_name_stands_for_one_content(start: StartPlugins, paths: Paths, made_up: MadeUpHost) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource(cdi=True)])
        await kubelet.lists.get()

        async def name_with(device: Device) -> str:
            await plugins.update({"example.com/fuse": (device,)})
            return (await allocate(kubelet, "misc-fuse")).cdi_devices[0].name

        first = await name_with(made_up.devices()["misc-fuse"])
        (made_up.root / "sys/devices/virtual/misc/fuse/dev").write_text("10:99\n")
        made_up.renumber("fuse", 99)
        renumbered = made_up.devices()["misc-fuse"]
        assert await name_with(renumbered) == first  # the runtime looks numbers up
        moved = replace(renumbered, devnodes=(replace(renumbered.devnodes[0], container_path="/dev/other"),))
        assert await name_with(moved) != first


async def test_the_lease_is_on_disk_when_the_answer_arrives(
    start: StartPlugins, paths: Paths, ledger: Ledger, tmp_path: Path
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        response = await allocate(kubelet, "misc-fuse")
        shutil.copytree(tmp_path / "state", tmp_path / "as-if-killed-now")
    restarted = await Ledger.open(tmp_path / "as-if-killed-now", "this-boot")
    assert [(lease.unit, lease.answer) for lease in restarted.leases()] == [
        ("misc-fuse", response.SerializeToString(deterministic=True))
    ]
    await restarted.close()


async def test_the_same_request_gets_the_same_answer(start: StartPlugins, paths: Paths, ledger: Ledger) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(shares=4)])
        await kubelet.lists.get()
        answers = await asyncio.gather(*(allocate(kubelet, "misc-fuse.1") for _ in range(20)))
        assert all(answer == answers[0] for answer in answers)
        assert [lease.unit for lease in ledger.leases()] == ["misc-fuse.1"]


async def test_ten_thousand_units_are_one_answer(start: StartPlugins, paths: Paths, ledger: Ledger) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(shares=10_000)])
        await kubelet.lists.get()
        response = await allocate(kubelet, *(f"misc-fuse.{n}" for n in range(10_000)))
        assert len(response.devices) == 1
        assert len(ledger.leases()) == 10_000


async def test_wrong_requests_are_refused_by_name(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        assert await refusal(kubelet) == (
            invalid,
            "example.com/fuse: the request names no device; ask for at least one",
        )
        code, text = await refusal(kubelet, "misc-kvm")
        assert (code, "device misc-kvm is not offered here" in text) == (invalid, True)
        code, text = await refusal(kubelet, "misc-fuse", "misc-fuse")
        assert (code, "device misc-fuse is requested more than once" in text) == (invalid, True)
        code, text = await refusal(kubelet, *(f"x{n}" for n in range(10_000)))
        assert (code, "devices x0, x1, x2, x3, x4 and 9995 more are not" in text) == (invalid, True)


@pytest.mark.parametrize("change", ["gone", "renumbered"])
async def test_a_node_that_is_another_devices_now_is_refused(
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
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "device misc-fuse is no longer what was offered: /dev/fuse is" in text


async def test_an_unhealthy_device_is_refused_with_its_reason(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource()])
        await kubelet.lists.get()
        sick = replace(made_up.devices()["misc-fuse"], health=Health(False, "too hot: 105 C"))
        await plugins.update({"example.com/fuse": (sick,)})
        assert (await kubelet.lists.get())[0].health == "Unhealthy"
        assert await refusal(kubelet, "misc-fuse") == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "device misc-fuse is unhealthy: too hot: 105 C",
        )


async def test_several_shares_of_one_device_against_the_policy(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(shares=4, preferred="distinct")])
        await kubelet.lists.get()
        code, text = await refusal(kubelet, "misc-fuse.0", "misc-fuse.1")
        assert (code, "its policy is distinct" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)


async def test_what_another_resource_holds_is_refused(start: StartPlugins, paths: Paths, ledger: Ledger) -> None:
    other = Lease(
        resource="example.com/other",
        unit="misc-fuse",
        api="dra",
        occupies=frozenset({"misc-fuse"}),
        holder="claim/u1",
        boot_id="this-boot",
        since=0.0,
    )
    await ledger.grant([other])
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        code, text = await refusal(kubelet, "misc-fuse")
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "example.com/other (dra) has given misc-fuse to claim/u1" in text
        await ledger.release(lambda lease: lease.api == "dra")
        await allocate(kubelet, "misc-fuse")


async def test_without_a_disk_nothing_is_promised(start: StartPlugins, paths: Paths, tmp_path: Path) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        await kubelet.lists.get()
        (database,) = (tmp_path / "state").glob("*.sqlite3")
        with sqlite3.connect(database, isolation_level=None) as intruder:
            intruder.execute("begin exclusive")  # whoever keeps the file locked makes it as useless as a full disk
            code, text = await refusal(kubelet, "misc-fuse")
            intruder.execute("rollback")
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "example.com/fuse" in text
        await allocate(kubelet, "misc-fuse")


async def test_without_cdi_specs_nothing_that_needs_them_is_promised_until_they_can_be_written(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    offered = {"example.com/fuse": (made_up.devices()["misc-fuse"],)}
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource(cdi=True)], timings=Timings(cdi=0.01))
        await kubelet.lists.get()
        shutil.rmtree(paths.cdi)
        paths.cdi.touch()
        await plugins.update({"example.com/fuse": ()})
        await plugins.update(offered)  # there again, as it was when its spec was written
        code, text = await refusal(kubelet, "misc-fuse")
        assert (code, "no CDI spec could be written" in text) == (grpc.StatusCode.UNAVAILABLE, True)
        paths.cdi.unlink()  # nobody tells us
        while not list(paths.cdi.glob("*.json")):  # noqa: ASYNC110 - a file is what tells
            await asyncio.sleep(0)
        await plugins.update(offered)
        await allocate(kubelet, "misc-fuse")


async def test_preferred_allocation_over_the_wire(start: StartPlugins, paths: Paths) -> None:
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


async def test_a_link_under_a_configured_glob_that_is_swapped_is_refused(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    by_id = made_up.root / "dev/by-id"
    by_id.mkdir()
    (by_id / "stick").symlink_to("../fuse")
    reader = paths_reader(["/dev/by-id/*"])
    offered = Resource("example.com/stick", PathsSelector(("/dev/by-id/*",)))
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([offered])
        await kubelet.lists.get()
        (device,) = scan(made_up.host, [reader]).devices.values()
        await plugins.update({offered.name: (device,)})
        (listed,) = await kubelet.lists.get()
        response = await allocate(kubelet, listed.ID)
        assert [node.container_path for node in response.devices] == ["/dev/by-id/stick"]
        (by_id / "stick").unlink()
        (by_id / "stick").symlink_to("../kvm")
        code, text = await refusal(kubelet, listed.ID)
        assert (code, "no longer what was offered" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)
        (by_id / "stick").unlink()
        (by_id / "stick").symlink_to("/etc/passwd")
        code, text = await refusal(kubelet, listed.ID)
        assert (code, "gone now" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)
