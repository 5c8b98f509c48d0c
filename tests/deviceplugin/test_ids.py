"""`ids`: names that other programs expect, and their changes while pods have devices."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint import Ledger
from hostdevices import Device
from kubelet.node import Node
from resources.resource import Resource
from resources.selector import Kinds
from tests.deviceplugin.conftest import Side, StartPlugins
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.node import GRACE, leases, node_of, offered, pod, until_ended, wait_for_passes
from tests.running import until

NAME = "example.com/misc"
FUSE, KVM = "0000:3b:00.0", "0000:3b:00.1"
NAMES = {
    "misc-fuse": {"resource.kubernetes.io/pciBusID": FUSE, "uuid": "GPU-fuse"},
    "misc-kvm": {"resource.kubernetes.io/pciBusID": KVM, "uuid": "GPU-kvm"},
}
Configure = Callable[..., Awaitable[Side]]


def misc(**options: object) -> Resource:
    return Resource(NAME, Kinds(("misc",)), **options)  # type: ignore[arg-type]  # tests name real fields


def devices(made_up: MadeUpHost) -> tuple[Device, ...]:
    """The host's devices, as if they were on a PCI bus."""
    return tuple(replace(x, attributes={**x.attributes, **NAMES[x.id]}) for x in made_up.devices().values())


@pytest.fixture
async def node(made_up: MadeUpHost, socket_dir: Path) -> AsyncIterator[Node]:
    async with node_of(made_up, socket_dir) as found:
        yield found


@pytest.fixture(params=["in place", "another process"])
async def configure(start: StartPlugins, made_up: MadeUpHost, request: pytest.FixtureRequest) -> Configure:
    """Offer other resources: by a reload of the same daemon, or by a new daemon."""
    running: list[Side] = []

    async def change(*resources: Resource) -> Side:
        if running and request.param == "another process":
            await running.pop().stop()
        if not running:
            running.append(await start(resources, grace=GRACE))
        (side,) = running
        side.resources = resources
        side.plugins.configure(resources)
        side.update({x.name: devices(made_up) for x in resources})
        await until(lambda: all(status.streaming for status in side.plugins.status()))
        return side

    return change


async def until_listed(node: Node, health: dict[str, str]) -> None:
    """Wait until this is the kubelet's list."""
    await node.until(lambda: {u: x.health for u, x in node.devices().get(NAME, {}).items()} == health, 30)


@pytest.mark.parametrize(
    ("options", "units"),
    [
        ({"ids": "pciBusID"}, {FUSE, KVM}),
        ({"ids": "uuid", "shares": 2}, {"GPU-fuse::0", "GPU-fuse::1", "GPU-kvm::0", "GPU-kvm::1"}),
        ({"ids": "path"}, {"/dev/fuse", "/dev/kvm"}),
    ],
)
async def test_kubelet_and_container_get_the_configured_ids(
    start: StartPlugins, made_up: MadeUpHost, node: Node, ledger: Ledger, options: dict[str, object], units: set[str]
) -> None:
    resource = misc(env={"IDS": "{ids}"}, **options)
    side = await start([resource], grace=GRACE)
    side.update({NAME: devices(made_up)})
    await until_listed(node, dict.fromkeys(units, "Healthy"))
    await node.admit(pod("a", NAME))
    (unit,) = (unit for _, unit, _ in leases(ledger))
    assert unit in units
    options_of_c = await node.run_container_options("a", "c")
    env = {x.name: x.value for x in options_of_c.envs}
    assert (env["IDS"], env["NODEPLUG_EXAMPLE_COM_MISC"]) == (unit, unit)
    await wait_for_passes(side, ledger)
    assert leases(ledger) == [(NAME, unit, "pod/default/a/c")]


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ({}, {"ids": "pciBusID"}, "misc-fuse", FUSE),
        ({"ids": "pciBusID"}, {}, FUSE, "misc-fuse"),
        ({"ids": "path", "cdi": True}, {"ids": "uuid", "cdi": True}, "/dev/fuse", "GPU-fuse"),
    ],
)
async def test_pod_keeps_its_device_exclusively_when_ids_change(
    configure: Configure,
    node: Node,
    ledger: Ledger,
    before: dict[str, object],
    after: dict[str, object],
    old: str,
    new: str,
) -> None:
    other = {"misc-fuse": "misc-kvm", FUSE: KVM, "GPU-fuse": "GPU-kvm"}[new]
    await configure(misc(**before))
    await offered(node, NAME, 2)
    await node.admit(pod("a", NAME))
    assert [unit for _, unit, _ in leases(ledger)] == [old]
    side = await configure(misc(**after))
    await until_listed(node, {old: "Unhealthy", new: "Unhealthy", other: "Healthy"})
    await wait_for_passes(side, ledger)
    assert leases(ledger) == [(NAME, old, "pod/default/a/c")]
    await node.exit_container("a", "c", 1)
    (status,) = node.status("a").container_statuses
    assert (status.state.name, status.restart_count) == ("running", 1)
    assert (await node.admit(pod("b", NAME))).phase == "Running"
    assert (await node.admit(pod("c", NAME))).phase == "Failed"
    await wait_for_passes(side, ledger)
    assert leases(ledger) == sorted([(NAME, old, "pod/default/a/c"), (NAME, other, "pod/default/b/c")])
    await node.remove("a")
    await until_ended(side, ledger, old)
    await until_listed(node, {new: "Healthy", other: "Healthy"})


async def test_shares_under_a_new_id_are_unhealthy_while_an_old_share_is_held(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    """Otherwise a device with two shares would have four holders."""
    await configure(misc(shares=2))
    await offered(node, NAME, 4)
    await node.admit(pod("a", NAME))
    side = await configure(misc(shares=2, ids="uuid"))
    ((_, unit, _),) = leases(ledger)
    taken = unit.partition(".")[0].removeprefix("misc-")
    names = {"fuse", "kvm"}
    await until_listed(
        node,
        {
            unit: "Unhealthy",
            **{f"GPU-{x}::{n}": "Unhealthy" if x == taken else "Healthy" for x in names for n in range(2)},
        },
    )
    await wait_for_passes(side, ledger)
    await node.remove("a")
    await until_ended(side, ledger, unit)
    await offered(node, NAME, 4)


async def test_lost_lease_is_restored_for_its_device_after_ids_change(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    await configure(misc(ids="pciBusID"))
    await offered(node, NAME, 2)
    await node.admit(pod("a", NAME))
    await ledger.end(ledger.leases())
    side = await configure(misc(ids="uuid"))
    await wait_for_passes(side, ledger, passes=3)
    (lease,) = ledger.leases()
    assert (lease.unit, lease.exclusive) == (FUSE, frozenset({"misc-fuse"}))
    await until_listed(node, {FUSE: "Unhealthy", "GPU-fuse": "Unhealthy", "GPU-kvm": "Healthy"})


async def test_lease_stays_with_its_device_when_two_devices_swap_paths(
    start: StartPlugins, made_up: MadeUpHost, node: Node, ledger: Ledger
) -> None:
    """A path does not identify a device: another device can be at the pod's path now."""
    side = await start([misc(ids="path")], grace=GRACE)
    await offered(node, NAME, 2)
    await node.admit(pod("a", NAME))
    assert [(x.unit, x.exclusive) for x in ledger.leases()] == [("/dev/fuse", frozenset({"misc-fuse"}))]
    fuse, kvm = made_up.devices().values()
    side.update({NAME: (replace(fuse, devnodes=kvm.devnodes), replace(kvm, devnodes=fuse.devnodes))})
    await until_listed(node, {"/dev/fuse": "Unhealthy", "/dev/kvm": "Unhealthy"})
    await wait_for_passes(side, ledger)
    assert leases(ledger) == [(NAME, "/dev/fuse", "pod/default/a/c")]
    await node.remove("a")
    await until_ended(side, ledger, "/dev/fuse")
    await until_listed(node, {"/dev/fuse": "Healthy", "/dev/kvm": "Healthy"})


async def test_lost_lease_is_restored_for_the_device_in_the_stored_response(
    start: StartPlugins, made_up: MadeUpHost, node: Node, ledger: Ledger
) -> None:
    """Its path can be another device's now, or none's. The kubelet keeps the answer with the device's CDI name."""
    side = await start([misc(ids="path")], grace=GRACE)
    await offered(node, NAME, 2)
    await node.admit(pod("a", NAME, 2))
    fuse, kvm = made_up.devices().values()
    for there in ((replace(fuse, devnodes=kvm.devnodes), replace(kvm, devnodes=fuse.devnodes)), (kvm,)):
        side.update({NAME: there})
        await ledger.end(ledger.leases())
        await wait_for_passes(side, ledger, passes=3)
        assert {x.unit: x.exclusive for x in ledger.leases()} == {
            "/dev/fuse": frozenset({"misc-fuse"}),
            "/dev/kvm": frozenset({"misc-kvm"}),
        }
