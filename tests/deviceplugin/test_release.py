"""Leases end when the kubelet no longer names their devices, and come back when our record was lost."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint import Lease, LeaseRefused, Ledger
from deviceplugin import Paths
from deviceplugin.lifecycle import Timings
from kubelet.node import Node
from kubelet.pods import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost


def pod(name: str, **limits: int) -> Pod:
    requests = ResourceRequirements(limits={f"example.com/{key}": count for key, count in limits.items()})
    return Pod(metadata=ObjectMeta(name=name), spec=PodSpec(containers=(Container("c", requests),)))


NO_GRACE = Timings(record=0.0)  # the kubelet here records an answer before `admit` returns


async def test_a_holder_is_known_and_its_lease_ends_with_the_pod(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path
) -> None:
    async with Node(socket_dir) as node:
        plugins = await start([resource(shares=2)], timings=NO_GRACE)
        await node.until(lambda: "example.com/fuse" in node.devices())
        await node.admit(pod("a", fuse=1))
        await node.admit(pod("b", fuse=1))
        await plugins.reconcile()
        assert sorted(lease.holder for lease in ledger.leases()) == ["pod/default/a/c", "pod/default/b/c"]
        node.finish("a")
        await plugins.reconcile()
        assert [lease.holder for lease in ledger.leases()] == ["pod/default/b/c"]


async def test_a_lease_stays_while_the_kubelet_is_away(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path
) -> None:
    async with Node(socket_dir) as node:
        plugins = await start([resource()], timings=NO_GRACE)
        await node.until(lambda: "example.com/fuse" in node.devices())
        await node.admit(pod("a", fuse=1))
        await node.stop()
        await plugins.reconcile()
        assert [lease.unit for lease in ledger.leases()] == ["misc-fuse"]
        await node.start()


async def test_a_unit_given_anew_changes_hands_at_once(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path
) -> None:
    async with Node(socket_dir) as node:
        await start([resource()], timings=NO_GRACE)
        await node.until(lambda: "example.com/fuse" in node.devices())
        await node.admit(pod("a", fuse=1))
        node.finish("a")
        assert (await node.admit(pod("b", fuse=1))).phase == "Running"
        assert [lease.unit for lease in ledger.leases()] == ["misc-fuse"]


async def test_what_the_kubelet_holds_without_our_record_gets_its_lease_back(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path
) -> None:
    async with Node(socket_dir) as node:
        plugins = await start([resource()], timings=NO_GRACE)
        await node.until(lambda: "example.com/fuse" in node.devices())
        await node.admit(pod("a", fuse=1))
        await ledger.release(lambda _: True)  # as after a database that had to be set aside
        await plugins.reconcile()
        (lease,) = ledger.leases()
        assert (lease.unit, lease.holder, lease.occupies) == ("misc-fuse", "pod/default/a/c", frozenset({"misc-fuse"}))


async def test_a_device_that_vanishes_from_a_pod_stays_listed_and_described(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path, made_up: MadeUpHost
) -> None:
    async with Node(socket_dir) as node:
        plugins = await start([resource(cdi=True)], timings=NO_GRACE)
        await node.until(lambda: "example.com/fuse" in node.devices())
        await node.admit(pod("a", fuse=1))
        (spec,) = paths.cdi.glob("*.json")
        before = spec.read_text()
        await plugins.update({"example.com/fuse": ()})
        await node.until(lambda: node.allocatable()["example.com/fuse"] == 0)
        assert node.capacity()["example.com/fuse"] == 1
        assert spec.read_text() == before
        node.finish("a")
        await plugins.reconcile()
        await plugins.update({"example.com/fuse": ()})
        await node.until(lambda: node.capacity()["example.com/fuse"] == 0)
        assert not list(paths.cdi.glob("*.json"))


async def test_registered_through_the_plugin_watcher(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path
) -> None:
    async with Node(socket_dir, reconcile_period=0.01) as node:
        plugins = await start([resource()], through_watcher=True)
        await node.until(lambda: "example.com/fuse" in node.devices())
        assert (await node.admit(pod("a", fuse=1))).phase == "Running"
        await node.restart()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1)
        assert plugins.status()[0].registrations >= 2
        await plugins.stop()
        assert not list(paths.plugins_registry.iterdir())


async def test_what_a_claim_holds_is_unhealthy_here_until_the_claim_ends(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path
) -> None:
    async with Node(socket_dir) as node:
        await start([resource(), resource("kvm")], timings=NO_GRACE)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1)
        claim = Lease(
            resource="example.com/fuse",
            unit="misc-fuse",
            api="dra",
            occupies=frozenset({"misc-fuse"}),
            holder="claim/1",
            boot_id="this-boot",
            since=time.time(),
        )
        await ledger.grant([claim])
        await node.until(lambda: node.allocatable()["example.com/fuse"] == 0)
        assert node.allocatable()["example.com/kvm"] == 1
        await ledger.release(lambda lease: lease.holder == "claim/1")
        await node.until(lambda: node.allocatable()["example.com/fuse"] == 1)


async def test_a_claim_gets_the_device_of_a_pod_that_is_gone_and_is_refused_that_of_one_that_is_not(
    start: StartPlugins, paths: Paths, ledger: Ledger, socket_dir: Path
) -> None:
    async with Node(socket_dir) as node:
        await start([resource()], timings=NO_GRACE)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1)
        await node.admit(pod("a", fuse=1))
        (held,) = ledger.leases()
        claim = replace(held, api="dra", holder="claim/1")
        with pytest.raises(LeaseRefused, match="pod/default/a/c"):
            await ledger.grant([claim])
        node.finish("a")
        await ledger.grant([claim])
        assert [lease.holder for lease in ledger.leases()] == ["claim/1"]
