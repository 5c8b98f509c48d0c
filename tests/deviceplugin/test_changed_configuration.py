"""A changed configuration while pods run: each pod keeps its devices exclusively, and they are free when it ends."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import cdi
from checkpoint import LeaseRefused, Ledger
from deviceplugin import Paths
from hostdevices.scan import scan
from kubelet.node import Node
from resources.assignment import assign
from resources.groups import Group, PathMember, PathSet
from resources.resource import Resource
from resources.selector import Ids, Kinds
from resources.selector import Paths as PathsSelector
from tests.checkpoint.build import claimed
from tests.deviceplugin.conftest import Side, StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.node import GRACE, leases, node_of, offered, pod, until_ended, wait_for_passes
from tests.running import until

FUSE, KVM, OTHER = "example.com/fuse", "example.com/kvm", "example.com/other"
Configure = Callable[..., Awaitable[Side]]


@pytest.fixture
async def node(made_up: MadeUpHost, socket_dir: Path) -> AsyncIterator[Node]:
    async with node_of(made_up, socket_dir) as found:
        yield found


@pytest.fixture
async def configure(start: StartPlugins, made_up: MadeUpHost) -> Configure:
    """Stop the running plugin side, and start one with other resources."""
    running: list[Side] = []

    async def change(*resources: Resource) -> Side:
        for side in running:
            await side.stop()
        running[:] = [await start(resources, grace=GRACE)]
        assigned = assign(scan(made_up.host), resources).devices
        running[0].update(assigned)
        await until(lambda: all(status.streaming for status in running[0].plugins.status()))
        return running[0]

    return change


def listed(node: Node, resource_name: str) -> dict[str, str]:
    """The kubelet's list of a resource: health by unit."""
    return {unit: device.health for unit, device in node.devices().get(resource_name, {}).items()}


async def until_listed(node: Node, resource_name: str, health: Mapping[str, str]) -> None:
    """Wait until this is the kubelet's list."""
    await node.until(lambda: listed(node, resource_name) == health, 30)


async def is_refused(node: Node, name: str, resource_name: str) -> bool:
    """Return whether a pod that requests a unit is refused."""
    status = await node.admit(pod(name, resource_name))
    await node.remove(name)
    return status.phase == "Failed"


def described_nodes(paths: Paths, resource_name: str) -> list[str]:
    """The paths of the nodes that a runtime finds for a resource's devices."""
    specs = [cdi.decode(path.read_bytes()) for path in paths.cdi.glob("*.json")]
    devices = [device for spec in specs if spec.kind == resource_name for device in spec.devices]
    return [node.path for device in devices for node in device.container_edits.device_nodes]


async def end_pod(node: Node, side: Side, ledger: Ledger, name: str) -> None:
    """End a pod; wait until its leases have ended."""
    await wait_for_passes(side, ledger)  # a pass learns the holders
    units = [lease.unit for lease in ledger.leases() if lease.holder == f"pod/default/{name}/c"]
    await node.remove(name)
    await until_ended(side, ledger, *units)


async def test_renamed_resource_refuses_a_device_held_under_the_old_name(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    await configure(resource())
    await offered(node)
    await node.admit(pod("a"))
    side = await configure(resource("other", selector=Ids(("misc-fuse",))))
    await until_listed(node, OTHER, {"misc-fuse": "Unhealthy"})
    await until_listed(node, FUSE, {"misc-fuse": "Unhealthy"})
    await wait_for_passes(side, ledger)
    assert leases(ledger) == [(FUSE, "misc-fuse", "pod/default/a/c")]
    assert await is_refused(node, "b", OTHER)
    await end_pod(node, side, ledger, "a")
    await offered(node, OTHER)
    assert leases(ledger) == []
    assert [status.name for status in side.plugins.status()] == [OTHER]
    assert (await node.admit(pod("b", OTHER))).phase == "Running"


async def test_container_of_a_removed_resource_restarts(configure: Configure, node: Node) -> None:
    await configure(resource(cdi=True), resource("kvm"))
    await offered(node)
    await node.admit(pod("a"))
    await configure(resource("kvm"))
    await until_listed(node, FUSE, {"misc-fuse": "Unhealthy"})
    await node.exit_container("a", "c", 1)
    (status,) = node.status("a").container_statuses
    assert (status.state.name, status.restart_count) == ("running", 1)


async def test_removed_resource_is_served_until_its_last_pod_ends(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    await configure(resource(), resource("kvm"))
    await offered(node)
    await node.admit(pod("a"))
    side = await configure(resource("kvm"))
    await until_listed(node, FUSE, {"misc-fuse": "Unhealthy"})
    await wait_for_passes(side, ledger)
    assert leases(ledger) == [(FUSE, "misc-fuse", "pod/default/a/c")]
    await end_pod(node, side, ledger, "a")
    assert leases(ledger) == []
    await node.until(lambda: not list(node.device_plugins.glob("nodeplug-example.com_fuse-*")))
    assert await is_refused(node, "b", FUSE)


async def test_wider_resource_gets_a_device_of_a_removed_one_when_its_pod_ends(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    """For example, a resource for one receiver is replaced by one for all serial adapters."""
    wide = resource("other", selector=Kinds(("misc",)))
    await configure(resource(), wide)
    await offered(node)
    await node.admit(pod("a"))
    side = await configure(wide)
    await until_listed(node, OTHER, {"misc-fuse": "Unhealthy", "misc-kvm": "Healthy"})
    assert (await node.admit(pod("b", OTHER))).phase == "Running"
    assert await is_refused(node, "c", OTHER)
    await wait_for_passes(side, ledger)
    assert leases(ledger) == [(FUSE, "misc-fuse", "pod/default/a/c"), (OTHER, "misc-kvm", "pod/default/b/c")]
    await end_pod(node, side, ledger, "a")
    await until_listed(node, OTHER, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})


async def test_narrowed_resource_lists_a_held_device_until_its_pod_ends(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    await configure(resource("other", selector=Kinds(("misc",))))
    await offered(node, OTHER, 2)
    await node.admit(pod("a", OTHER))
    assert leases(ledger)[0][1] == "misc-fuse"
    side = await configure(resource("other", selector=Ids(("misc-kvm",))), resource())
    await until_listed(node, OTHER, {"misc-fuse": "Unhealthy", "misc-kvm": "Healthy"})
    await until_listed(node, FUSE, {"misc-fuse": "Unhealthy"})
    await end_pod(node, side, ledger, "a")
    await until_listed(node, OTHER, {"misc-kvm": "Healthy"})
    await offered(node, FUSE)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
async def test_changed_shares_are_unhealthy_until_all_old_shares_have_ended(
    configure: Configure, node: Node, ledger: Ledger, before: int, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await configure(resource(shares=before))
    await offered(node, count=before)
    names = ["a", "b"][:before]
    for name in names:
        await node.admit(pod(name))
    side = await configure(resource(shares=after))
    old = {lease.unit for lease in ledger.leases()}
    new = {f"misc-fuse.{n}" for n in range(after)} if after > 1 else {"misc-fuse"}
    for number, name in enumerate(names):
        assert len(ledger.leases()) == before - number
        await until_listed(node, FUSE, dict.fromkeys(old | new, "Unhealthy"))
        assert await is_refused(node, "c", FUSE)
        had = f" while the device had {before} share{'s' if before > 1 else ''}; it has {after} now"
        assert any(record.message.endswith(had) for record in caplog.records)
        await end_pod(node, side, ledger, name)
        old = {lease.unit for lease in ledger.leases()}
    await offered(node, count=after)
    assert listed(node, FUSE) == dict.fromkeys(new, "Healthy")


PAIR = Resource(
    OTHER,
    PathsSelector(("/dev/fuse", "/dev/kvm")),
    group=PathSet((PathMember("/dev/fuse"), PathMember("/dev/kvm"))),
)


async def test_group_is_unhealthy_while_a_pod_holds_a_member(configure: Configure, node: Node, ledger: Ledger) -> None:
    await configure(resource())
    await offered(node)
    await node.admit(pod("a"))
    side = await configure(PAIR)
    await node.until(lambda: list(listed(node, OTHER).values()) == ["Unhealthy"], 30)
    await end_pod(node, side, ledger, "a")
    await offered(node, OTHER)


async def test_members_of_a_former_group_are_unhealthy_until_its_pod_ends(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    await configure(PAIR)
    await offered(node, OTHER)
    await node.admit(pod("a", OTHER))
    side = await configure(resource(), resource("kvm"))
    await until_listed(node, FUSE, {"misc-fuse": "Unhealthy"})
    await until_listed(node, KVM, {"misc-kvm": "Unhealthy"})
    await wait_for_passes(side, ledger)
    assert len(ledger.leases()) == 1
    await end_pod(node, side, ledger, "a")
    await offered(node, FUSE)
    await offered(node, KVM)


async def test_narrowed_group_keeps_all_members_for_its_pod(
    configure: Configure, node: Node, ledger: Ledger, made_up: MadeUpHost, paths: Paths
) -> None:
    made_up.add("tun", 7)
    others = [PathMember(x, optional=True) for x in ("/dev/kvm", "/dev/tun")]
    three = replace(PAIR, selector=Kinds(("misc",)), group=PathSet((PathMember("/dev/fuse"), *others)), cdi=True)
    await configure(three)
    await offered(node, OTHER)
    await node.admit(pod("a", OTHER))
    side = await configure(replace(three, selector=PathsSelector(("/dev/fuse", "/dev/tun"))))
    assert described_nodes(paths, OTHER) == ["/dev/fuse", "/dev/kvm", "/dev/tun"]
    made_up.remove_node("tun")
    side.update(assign(scan(made_up.host), side.resources).devices)
    await until(lambda: described_nodes(paths, OTHER) == ["/dev/fuse", "/dev/kvm"])
    await end_pod(node, side, ledger, "a")
    await until(lambda: described_nodes(paths, OTHER) == ["/dev/fuse"])


async def test_returned_group_member_is_not_described_for_an_older_pod(
    configure: Configure, node: Node, ledger: Ledger, made_up: MadeUpHost, paths: Paths
) -> None:
    """A restarted container gets the same CDI name. It would open a node that another pod could have."""
    members = (PathMember("/dev/fuse"), PathMember("/dev/kvm", optional=True))
    pair = replace(PAIR, group=PathSet(members), cdi=True)
    made_up.remove_node("kvm")
    side = await configure(pair, resource("tun"))
    await offered(node, OTHER)
    await node.admit(pod("a", OTHER))

    made_up.renumber("kvm", 1)
    made_up.add("tun", 7)
    side.update(assign(scan(made_up.host), side.resources).devices)
    await until(lambda: described_nodes(paths, "example.com/tun") == ["/dev/tun"])  # all specs are written together
    assert described_nodes(paths, OTHER) == ["/dev/fuse"]
    await node.until(lambda: list(listed(node, OTHER).values()) == ["Unhealthy"], 30)
    await end_pod(node, side, ledger, "a")
    await offered(node, OTHER)
    assert described_nodes(paths, OTHER) == ["/dev/fuse", "/dev/kvm"]


@pytest.mark.parametrize("group", [None, PathSet((PathMember("/dev/fuse"),))])
async def test_lost_lease_of_a_former_group_is_restored_with_its_members(
    configure: Configure, node: Node, ledger: Ledger, group: Group | None
) -> None:
    """The kubelet knows only the group's name, and the ledger's record was lost."""
    await configure(PAIR)
    await offered(node, OTHER)
    await node.admit(pod("a", OTHER))
    await ledger.end(ledger.leases())
    side = await configure(replace(PAIR, selector=PathsSelector(("/dev/fuse",)), group=group), resource("kvm"))
    await wait_for_passes(side, ledger, passes=3)
    (lease,) = ledger.leases()
    assert lease.exclusive == {lease.unit, "misc-fuse", "misc-kvm"}


async def test_device_moved_to_dra_is_refused_to_claims_until_its_pod_ends(
    configure: Configure, node: Node, ledger: Ledger
) -> None:
    await configure(resource())
    await offered(node)
    await node.admit(pod("a"))
    side = await configure()
    await wait_for_passes(side, ledger)
    with pytest.raises(LeaseRefused, match="has allocated misc-fuse to pod/default/a/c"):
        await ledger.grant([claimed("misc-fuse", "u", FUSE)])
    await node.remove("a")
    await ledger.grant([claimed("misc-fuse", "u", FUSE)])  # a pass ran before a refusal
    assert [status.name for status in side.plugins.status()] == []


async def test_lease_survives_a_series_of_configurations(configure: Configure, node: Node, ledger: Ledger) -> None:
    configurations: Sequence[Sequence[Resource]] = (
        [resource()],
        [resource("other", selector=Ids(("misc-fuse",)))],
        [],
        [resource(shares=3)],
        [resource()],
    )
    await configure(*configurations[0])
    await offered(node)
    await node.admit(pod("a"))
    for resources in configurations[1:]:
        side = await configure(*resources)
        await wait_for_passes(side, ledger)
        assert leases(ledger) == [(FUSE, "misc-fuse", "pod/default/a/c")]
    await until_listed(node, FUSE, {"misc-fuse": "Healthy"})
    await end_pod(node, side, ledger, "a")
    assert leases(ledger) == []


async def test_kubelet_gets_numa_nodes_unless_topology_is_disabled(
    configure: Configure, made_up: MadeUpHost, node: Node
) -> None:
    (made_up.root / "sys/devices/virtual/misc/fuse/numa_node").write_text("1\n")

    def listed_numa_nodes() -> tuple[int, ...] | None:
        (unit,) = node.devices()[FUSE].values()
        return unit.topology

    await configure(resource("fuse"))
    await node.until(lambda: FUSE in node.devices() and listed_numa_nodes() == (1,), 30)
    await configure(resource("fuse", topology=False))
    await node.until(lambda: listed_numa_nodes() is None, 30)
