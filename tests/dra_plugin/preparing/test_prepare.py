"""Preparing and unpreparing, from the claim to the lease, the files and the answer."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

import cdi
from checkpoint.withheld import Withheld
from dra_plugin.driver import ClaimFailed, ClaimRef, PreparedDevice
from hostdevices import Health
from resourceapi.objects import v1
from resources.resource import Capacity, DraOptions, Partition
from tests.checkpoint.build import lease
from tests.dra_plugin.preparing.world import DRIVER, NODE, UID, World, claim, config, ref, resource, result, uid
from tests.dra_scenarios import scenario


async def test_prepare_creates_lease_spec_and_answer(world: World) -> None:
    (device,) = await world.prepare(claim(result("misc-fuse")))
    first, mounted = device.cdi_device_ids
    assert device == PreparedDevice(("gpu",), NODE, "misc-fuse", (first, mounted))
    assert first == f"{DRIVER}/claim={UID}_gpu_misc-fuse"
    assert mounted == f"{DRIVER}/metadata={UID}_gpu"
    (lease,) = world.ledger.leases()
    assert (lease.api, lease.resource, lease.unit) == ("dra", "example.com/fuse", "misc-fuse")
    assert (lease.owner, lease.holder, lease.phase) == (f"claim/{UID}", f"claim/default/mine/{UID}", "done")
    assert (lease.exclusive, lease.shared) == (frozenset({"misc-fuse"}), frozenset())
    inside = world.container([device])
    assert list(inside.nodes) == ["/dev/fuse"]
    assert inside.env == {"NODEPLUG_MINE__GPU": "misc-fuse"}


async def test_lease_has_the_pods_that_reserved_the_claim(world: World) -> None:
    """A DaemonSet cannot read it. The cgroups of these pods then show whether the devices are in use."""
    users = [("pods", "uid-1"), ("pods", "uid-2"), ("widgets", "uid-3")]
    reserved = tuple(v1.ResourceClaimConsumerReference(resource=kind, name=x, uid=x) for kind, x in users)
    found = claim(result("misc-fuse"))
    await world.prepare(replace(found, status=replace(found.status, reserved_for=reserved)))
    assert [lease.pods for lease in world.ledger.leases()] == [frozenset({"uid-1", "uid-2"})]


@scenario(268)
async def test_devices_of_a_claim_are_leased_in_one_commit(world: World) -> None:
    before = world.ledger.commits
    devices = await world.prepare(claim(result("misc-fuse", "a"), result("misc-kvm", "b")))
    assert [(x.requests, x.device, x.share_id) for x in devices] == [
        (("a",), "misc-fuse", None),
        (("b",), "misc-kvm", None),
    ]
    assert world.ledger.commits - before == 1
    assert len({lease.record for lease in world.ledger.leases()}) == 1
    assert world.container(devices, "a").env == {"NODEPLUG_MINE__A": "misc-fuse"}
    assert world.container(devices).env == {"NODEPLUG_MINE__A": "misc-fuse", "NODEPLUG_MINE__B": "misc-kvm"}
    assert await world.failures(ref(claim())) == {UID: None}
    assert world.ledger.commits - before == 2, "leases end in one, too"


async def test_device_withheld_after_the_plan_is_refused_to_new_claims(world: World) -> None:
    """The offers do not contain the withholding yet, because it arrives there later."""
    fuse = claim(result("misc-fuse"))
    prepared = await world.prepare(fuse)
    await world.ledger.withhold([Withheld("misc-fuse", "noise", 0.0), Withheld("misc-kvm", "", 0.0)])
    assert await world.prepare(fuse) == prepared
    other = claim(result("misc-kvm"), name="other", uid=uid(1))
    outcome = (await world.outcomes(other))[uid(1)]
    assert isinstance(outcome, ClaimFailed)
    assert outcome.reason == "request gpu: device misc-kvm is withheld; `nodeplug readmit` ends that"
    assert [lease.unit for lease in world.ledger.leases()] == ["misc-fuse"]
    await world.ledger.readmit(["misc-kvm"])
    await world.prepare(other)


async def test_claim_of_another_driver_leaves_nothing(world: World) -> None:
    assert await world.prepare(claim(result("other", driver="gpu.example.com"))) == ()
    assert (world.units(), world.files()) == ([], [])


async def test_each_claim_of_a_call_has_its_own_outcome(world: World) -> None:
    good, bad = claim(result("misc-fuse")), claim(result("no-such"), name="other", uid=uid(2))
    outcomes = await world.outcomes(good, bad)
    assert set(outcomes) == {UID, uid(2)}
    assert isinstance(outcomes[uid(2)], ClaimFailed)
    assert world.units() == ["misc-fuse"]


async def test_unavailable_device_is_refused_with_the_reason(world: World) -> None:
    assert "claim default/mine is not allocated" in await world.refusal(
        replace(claim(result("misc-fuse")), status=v1.ResourceClaimStatus())
    )
    assert (
        await world.refusal(claim(result("misc-none"))) == "request gpu: device misc-none is not offered on this node"
        " any more; delete the pod to get another one"
    )
    assert "is in the pool worker-2, and this node's pool is worker-1" in await world.refusal(
        claim(result("misc-fuse", pool="worker-2"))
    )
    unhealthy = replace(world.made_up.devices()["misc-fuse"], health=Health(False, "too hot: 105 C"))
    world.scan(fuse=unhealthy)
    assert (
        await world.refusal(claim(result("misc-fuse"))) == "request gpu: device misc-fuse is unhealthy: too hot: 105 C"
    )
    assert (world.units(), world.files()) == ([], [])


@pytest.mark.parametrize("change", ["gone", "renumbered"])
async def test_changed_device_node_is_refused(world: World, change: str) -> None:
    if change == "gone":
        world.made_up.remove_node("fuse")
    else:
        world.made_up.renumber("fuse", 77)
    changed = "device misc-fuse changed since it was published: /dev/fuse is "
    assert changed in await world.refusal(claim(result("misc-fuse")))


async def test_device_of_another_claim_is_refused_with_its_holder(world: World) -> None:
    await world.prepare(claim(result("misc-fuse"), name="first", uid=uid(1)))
    refusal = await world.refusal(claim(result("misc-fuse"), uid=uid(2)))
    assert f"has allocated misc-fuse to claim/default/first/{uid(1)}" in refusal
    assert "wait until that claim is unprepared" in refusal
    assert [lease.owner for lease in world.ledger.leases()] == [f"claim/{uid(1)}"]


async def test_device_leased_by_the_device_plugin_is_refused(world: World) -> None:
    await world.ledger.grant([lease("misc-fuse", "example.com/both", holder="pod/default/a/c")])
    assert "pod/default/a/c" in await world.refusal(claim(result("misc-fuse")))
    await world.ledger.end(world.ledger.leases())
    await world.prepare(claim(result("misc-fuse")))


async def test_repeated_prepare_returns_the_same_answer_without_writes(world: World) -> None:
    wanted = claim(result("misc-fuse"), result("misc-kvm", "other"))
    first = await world.prepare(wanted)
    files, commits = world.files(), world.ledger.commits
    times = {path: (world.folder / path).stat().st_mtime_ns for path in files}
    again = await asyncio.gather(*(world.prepare(wanted) for _ in range(20)))
    assert all(answer == first for answer in again)
    assert world.ledger.commits == commits
    assert {path: (world.folder / path).stat().st_mtime_ns for path in world.files()} == times


@pytest.mark.parametrize("since", ["unhealthy", "not offered"])
async def test_prepared_claim_keeps_its_answer_when_the_offer_changes(world: World, since: str) -> None:
    wanted = claim(result("misc-fuse"))
    first = await world.prepare(wanted)
    if since == "unhealthy":
        world.scan(fuse=replace(world.made_up.devices()["misc-fuse"], health=Health(False, "too hot")))
    else:
        world.resources = [resource("kvm")]
        await world.restart()
    for path in world.files():
        (world.folder / path).unlink()
    assert await world.prepare(wanted) == first
    assert list(world.container(first).nodes) == ["/dev/fuse"]


async def test_device_of_a_renamed_resource_has_one_lease_after_a_reboot(world: World) -> None:
    wanted = claim(result("misc-fuse"))
    await world.prepare(wanted)
    world.resources = [replace(world.resources[0], name="example.com/renamed")]
    await world.restart(boot_id="another-boot")
    assert await world.prepare(wanted) == await world.prepare(wanted)
    assert [x.resource for x in world.ledger.leases()] == ["example.com/renamed"]


async def test_reallocated_claim_is_prepared_again(world: World) -> None:
    await world.prepare(claim(result("misc-fuse")))
    (device,) = await world.prepare(claim(result("misc-kvm")))
    assert (device.device, world.units()) == ("misc-kvm", ["misc-kvm"])
    assert list(world.container([device]).nodes) == ["/dev/kvm"]
    early, late = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))
    hot, cold = config(env={"MODE": "hot"}), config(env={"MODE": "cold"})
    first = await world.prepare(claim(result("misc-kvm"), configs=[hot], allocation_timestamp=early))
    assert world.container(first).env.get("MODE") is None  # without a newer timestamp it counts as the same allocation
    await world.unprepare(claim())
    await world.prepare(claim(result("misc-kvm"), configs=[hot], allocation_timestamp=early))
    second = await world.prepare(claim(result("misc-kvm"), configs=[cold], allocation_timestamp=late))
    assert world.container(second).env["MODE"] == "cold"


async def test_unprepare_needs_no_claim_and_can_be_repeated(world: World) -> None:
    wanted = claim(result("misc-fuse"))
    first = await world.prepare(wanted)
    for _ in range(2):
        await world.unprepare(wanted)
        assert (world.units(), world.files()) == ([], [])
    assert await world.failures(ClaimRef("other", "unknown", uid(9))) == {uid(9): None}
    assert await world.prepare(wanted) == first


async def test_concurrent_calls_of_many_claims_give_consistent_leases(tmp_path: Path) -> None:
    names = [f"m{n}" for n in range(20)]
    async with World(tmp_path, *names) as world:
        claims = [claim(result(f"misc-{name}"), name=name, uid=uid(n)) for n, name in enumerate(names)]
        calls = [world.outcomes(each) for each in claims for _ in range(2)]
        await asyncio.gather(*calls, world.failures(ref(claims[0])))
        assert world.units() == sorted(f"misc-{name}" for name in names[1:])
        assert len([path for path in world.files() if "claim" in path]) == 19


async def test_admin_access_covers_held_and_unhealthy_devices(world: World) -> None:
    await world.prepare(claim(result("misc-fuse"), name="user", uid=uid(1)))
    unhealthy = replace(world.made_up.devices()["misc-kvm"], health=Health(False, "too hot"))
    world.scan(kvm=unhealthy)
    looks = [result("misc-fuse", "look", admin_access=True), result("misc-kvm", "look", admin_access=True)]
    devices = await world.prepare(claim(*looks, configs=[config(reset=True)]))  # a reset is never done for admin access
    assert world.container(devices).env == {
        "NODEPLUG_MINE__LOOK": "misc-fuse,misc-kvm",
        "NODEPLUG_MINE__LOOK__ADMIN_ACCESS": "true",
    }
    assert world.units() == ["misc-fuse", f"misc-fuse@{UID}", f"misc-kvm@{UID}"]
    await world.unprepare(claim(name="user", uid=uid(1)))
    await world.prepare(claim(result("misc-fuse"), name="next", uid=uid(2)))  # admin access does not block it


@scenario(194, 269)
async def test_share_ids_are_in_answers_names_and_leases(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.resources = [resource("fuse", shares=4), resource("kvm")]
    async with world:
        devices = await world.prepare(
            claim(result("misc-kvm", "whole"), *(result("misc-fuse", "part", share_id=f"share-{n}") for n in range(2)))
        )
        assert [x.share_id for x in devices] == [None, "share-0", "share-1"]
        names = [x.cdi_device_ids[0].partition("=")[2] for x in devices]
        assert names == [
            f"{UID}_whole_misc-kvm",
            f"{UID}_part_misc-fuse_share-0",
            f"{UID}_part_misc-fuse_share-1",
        ]
        assert world.units() == ["misc-fuse/share-0", "misc-fuse/share-1", "misc-kvm"]


@scenario(270)
async def test_each_share_has_its_environment_variables(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.resources = [resource("fuse", shares=5)]
    async with world:
        one = result("misc-fuse", "one", share_id="s1", consumed={"shares": "1", "example.com/cpu": "1"})
        three = result("misc-fuse", "three", share_id="s2", consumed={"shares": "3"})
        devices = await world.prepare(claim(one, three))
        assert world.container(devices).env == {
            "NODEPLUG_MINE__ONE": "misc-fuse",
            "NODEPLUG_MINE__ONE__CAPACITY_EXAMPLE_COM_CPU": "1",
            "NODEPLUG_MINE__ONE__CAPACITY_SHARES": "1",
            "NODEPLUG_MINE__THREE": "misc-fuse",
            "NODEPLUG_MINE__THREE__CAPACITY_SHARES": "3",
        }
        other = await world.prepare(claim(result("misc-fuse", share_id="s3"), name="other", uid=uid(2)))
        assert world.container(other).env == {"NODEPLUG_OTHER__GPU": "misc-fuse"}
        assert len(world.units()) == 3


async def test_class_limits_the_number_of_sharing_claims(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.resources = [resource("fuse", shares=10)]
    async with world:
        two = config(source=v1.FROM_CLASS, sharing={"maximum": 2})

        def sharing_claim(number: int, *configs: v1.DeviceAllocationConfiguration) -> v1.ResourceClaim:
            share = result("misc-fuse", share_id=f"s{number}")
            return claim(share, configs=configs, name=f"c{number}", uid=uid(number))

        await world.prepare(sharing_claim(1))
        await world.prepare(sharing_claim(2, two))
        refusal = "device misc-fuse: 2 use it already and the configuration of {} allows 2 at once (sharing.maximum)"
        assert refusal.format("this claim") in await world.refusal(sharing_claim(3, two))
        assert refusal.format(f"claim/{uid(2)}") in await world.refusal(sharing_claim(3))
        await world.restart()
        assert refusal.format(f"claim/{uid(2)}") in await world.refusal(sharing_claim(3))
        await world.unprepare(sharing_claim(1))
        await world.prepare(sharing_claim(3))
        await world.unprepare(sharing_claim(2))
        await asyncio.gather(*(world.prepare(sharing_claim(number)) for number in range(4, 10)))
        alone = config(source=v1.FROM_CLASS, sharing={"maximum": 1})
        for number in (3, *range(4, 10)):
            await world.unprepare(sharing_claim(number))
        outcomes = await world.outcomes(sharing_claim(1, alone), sharing_claim(2, alone))
        assert sorted(isinstance(outcome, ClaimFailed) for outcome in outcomes.values()) == [False, True]


async def test_share_held_by_an_old_claim_is_refused(tmp_path: Path) -> None:
    """The scheduler considers a force-deleted pod ended, although its container can still run."""
    world = World(tmp_path)
    world.resources = [resource("fuse", shares=3)]

    def sharing_claim(number: int, taken: str = "1") -> v1.ResourceClaim:
        share = result("misc-fuse", share_id=f"s{number}", consumed={"shares": taken})
        return claim(share, name=f"c{number}", uid=uid(number))

    async with world:
        await world.prepare(sharing_claim(1))
        await world.prepare(sharing_claim(2, taken="2"))
        refusal = await world.refusal(sharing_claim(3))
        assert refusal == (
            f"device misc-fuse: of 3 shares 3 are taken by claim/{uid(1)}, claim/{uid(2)}, and this claim needs 1; end"
            " one of them first"
        )
        assert len(world.units()) == 2
        world.resources = [resource("fuse", shares=2)]
        await world.restart(boot_id="another-boot")
        await world.prepare(sharing_claim(2, taken="2"))  # keeps what it has
        await world.unprepare(sharing_claim(1))
        assert "this claim needs 1" in await world.refusal(sharing_claim(3))
        await world.unprepare(sharing_claim(2))
        await world.prepare(sharing_claim(3))


async def test_device_is_reset_once_before_use(world: World) -> None:
    address = "0000:00:05.0"
    function = world.made_up.root / "sys/bus/pci/devices" / address
    function.mkdir(parents=True)
    (function / "reset").write_text("")
    attributes = {"resource.kubernetes.io/pciBusID": address}
    world.scan(fuse=replace(world.made_up.devices()["misc-fuse"], attributes=attributes))
    wanted = claim(result("misc-fuse"), configs=[config(reset=True)])
    await world.prepare(wanted)
    assert (function / "reset").read_text() == "1"
    (function / "reset").write_text("")
    await world.prepare(wanted)
    assert (function / "reset").read_text() == ""


async def test_reset_of_an_unresettable_device_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.resources = [resource("fuse"), resource("kvm", shares=4)]
    async with world:
        resetting = [config(reset=True)]
        assert "misc-fuse is not on a PCI bus and cannot be reset" in await world.refusal(
            claim(result("misc-fuse"), configs=resetting)
        )
        assert "misc-kvm is shared, a reset would hit its other holders" in await world.refusal(
            claim(result("misc-kvm", share_id="s"), configs=resetting)
        )
        assert (world.units(), world.files()) == ([], [])


async def test_invalid_configuration_is_refused_with_its_index(world: World) -> None:
    configs = [
        config(driver="gpu.example.com", whatever=1),
        config(env={"GOOD": "1"}),
        config(env={"PATH": "/evil"}),
        v1.DeviceAllocationConfiguration(source=v1.FROM_CLASS, requests=("gpu",)),
    ]
    assert await world.refusal(claim(result("misc-fuse"), configs=configs)) == (
        "config[2] (from the claim): parameters.env.PATH: cannot be set by a configuration; choose another name;"
        " config[3] (from the class): only opaque parameters are understood"
    )
    assert world.units() == []


async def test_claim_is_prepared_after_a_failed_write(world: World) -> None:
    world.cdi.write_text("no folder can be made here")  # as on a disk without inodes
    wanted = claim(result("misc-fuse"))
    assert "File exists" in await world.refusal(wanted)
    assert world.units() == []
    assert not list(world.metadata.rglob("*.json"))
    world.cdi.unlink()
    await world.prepare(wanted)


async def test_no_metadata_files_are_written_when_disabled(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.has_metadata = False
    async with world:
        (device,) = await world.prepare(claim(result("misc-fuse")))
        assert len(device.cdi_device_ids) == 1
        (spec,) = world.specs().values()
        assert spec.kind == f"{DRIVER}/claim"
        await world.unprepare(claim())
        assert world.files() == []


async def test_device_without_edits_has_no_cdi_device(world: World) -> None:
    bare = [replace(world.made_up.devices()[f"misc-{name}"], devnodes=()) for name in ("fuse", "kvm")]
    world.scan(fuse=bare[0], kvm=bare[1])
    first, second = await world.prepare(claim(result("misc-fuse"), result("misc-kvm")))
    assert len(first.cdi_device_ids) == 2  # the request's environment, and its metadata
    assert second.cdi_device_ids == ()
    assert world.container([first, second]).env == {"NODEPLUG_MINE__GPU": "misc-fuse,misc-kvm"}


async def test_partition_is_exclusive_and_shares_its_device(world: World) -> None:
    halves = DraOptions(counters={"m": "2"}, partitions=(Partition("half", {"m": "1"}, count=2),))
    world.resources = [resource("fuse", dra=halves), resource("kvm")]
    await world.restart()
    names = [x.name for x in world.offers if x.partition]
    assert len(names) == 2
    for number, name in enumerate(names):
        await world.prepare(claim(result(name), name=f"c{number}", uid=uid(number)))
    assert {x.unit: (x.exclusive, x.shared) for x in world.ledger.leases()} == {
        name: (frozenset({name}), frozenset({"misc-fuse"})) for name in names
    }
    assert "is shared, a reset" in await world.refusal(
        claim(result(names[0]), name="c9", uid=uid(9), configs=[config(reset=True)])
    )


async def test_counters_and_capacity_of_other_claims_are_refused(world: World) -> None:
    layout = DraOptions(
        counters={"memory": "80Gi", "slices": "7"},
        partitions=(Partition("half", {"memory": "40Gi"}), Partition("all", {"memory": "80Gi", "slices": "7"})),
    )
    streams = DraOptions(capacity={"streams": Capacity("32", default="4")})
    world.resources = [resource("fuse", dra=layout), resource("kvm", shares=8, dra=streams)]
    await world.restart()
    await world.prepare(claim(result("misc-fuse-half"), name="c1", uid=uid(1)))
    refusal = await world.refusal(claim(result("misc-fuse-all"), name="c2", uid=uid(2)))
    assert "device misc-fuse: of 80Gi memory 40Gi are taken by claim/" in refusal
    most, rest = (
        claim(result("misc-kvm", share_id=f"s{n}", consumed={"streams": str(n)}), name=f"c{n}", uid=uid(n))
        for n in (28, 5)
    )
    await world.prepare(most)
    assert "device misc-kvm: of 32 streams 28 are taken by claim/" in await world.refusal(rest)
    await world.unprepare(most)
    await world.prepare(rest)


@scenario(201, 218)
async def test_configurations_of_class_and_claim_apply_to_their_requests(world: World) -> None:
    configs = [
        config(env={"admin_x": "y", "user_a": "class"}, source=v1.FROM_CLASS),
        config("a", env={"claim_mine_a": "{ids}"}),
        config(env={"user_a": "b"}),
    ]
    devices = await world.prepare(claim(result("misc-fuse", "a"), result("misc-kvm", "b"), configs=configs))
    own = {"admin_x": "y", "user_a": "b"}
    assert world.container(devices, "a").env == own | {"claim_mine_a": "misc-fuse", "NODEPLUG_MINE__A": "misc-fuse"}
    assert world.container(devices, "b").env == own | {"NODEPLUG_MINE__B": "misc-kvm"}


async def test_specs_declare_the_lowest_cdi_version(world: World) -> None:
    await world.prepare(claim(result("misc-fuse")))
    assert {spec.cdi_version for spec in world.specs().values()} == {"0.5.0"}  # the uid begins with a digit
    assert all(cdi.required_version(spec) == spec.cdi_version for spec in world.specs().values())
