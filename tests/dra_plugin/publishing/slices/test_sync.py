"""One sync of a pool: what is written, what is stored afterwards, and that a second sync writes nothing.

The names of cases begin with the number of their scenario.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from dra_plugin.publishing.slices import DriverResources, DroppedFieldsError, Owner, Slice
from resourceapi.objects import from_dict, v1
from resourceapi.objects.core import NodeSelector
from tests.cases import Case, recorded
from tests.dra_plugin.publishing.slices.build import (
    DRIVER,
    NODE,
    TIME,
    changed,
    device,
    indexed,
    one_pool,
    slices,
    stored,
    taint,
    tainted,
)
from tests.dra_plugin.publishing.slices.kit import Cluster, Plain, writes
from tests.dra_scenarios import scenario

DEPLOYMENT = Owner("apps/v1", "Deployment", "owner", "some-uid")
HERE = from_dict(
    NodeSelector,
    {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["here"]}]}]},
)
THERE = from_dict(
    NodeSelector,
    {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["there"]}]}]},
)
D1, D2, D3, D4 = (device(f"device-{number}") for number in (1, 2, 3, 4))
C1, C2, C3 = (changed(f"device-{number}") for number in (1, 2, 3))
COUNTERS = {"name": "gpu-0", "counters": {"mem": {"value": "1"}}}
CONSUMES = [{"counterSet": "gpu-0", "counters": {"mem": {"value": "1"}}}]
PARTITIONED = one_pool(
    Slice(shared_counters=(from_dict(v1.CounterSet, COUNTERS),), per_device_node_selection=True),
    Slice(devices=(device(consumesCounters=CONSUMES, nodeName="here"),), per_device_node_selection=True),
)
BINDING = device(
    bindsToNode=True, bindingConditions=["a.example.com/ready"], bindingFailureConditions=["a.example.com/no"]
)


@recorded("allocator/controller.json")
def test_recorded_case_of_the_upstream_controller(case: Case) -> None:
    case.run()


class SyncCase(NamedTuple):
    """The stored and desired slices, the writes (creates, updates, deletes), and the shape of the slices afterwards.

    A shape is `index generation/count device,...`; a changed device has a `*`.
    """

    name: str
    initial: tuple[v1.ResourceSlice, ...]
    desired: DriverResources
    writes: tuple[int, int, int]
    shapes: list[str]


THREE = (indexed(0, D1, count=3), indexed(1, D2, count=3), indexed(2, D3, count=3))
SYNC_CASES = [
    SyncCase("66 create-slice", (), one_pool(*slices(D1)), (1, 0, 0), ["00000 1/1 device-1"]),
    SyncCase("67 keep-slice-unchanged", (indexed(0, D1),), one_pool(*slices(D1)), (0, 0, 0), ["00000 1/1 device-1"]),
    SyncCase("72 remove-pool", (indexed(0, D1),), DriverResources(), (0, 0, 1), []),
    SyncCase(
        "73 one-existing-and-one-desired", (indexed(0),), one_pool(*slices(D1)), (0, 1, 0), ["00000 1/1 device-1"]
    ),
    SyncCase(
        "74 two-slices-one-changed",
        (indexed(0, D1, count=2), indexed(1, D2, count=2)),
        one_pool(*slices(D1, C2)),
        (0, 1, 0),
        ["00000 1/2 device-1", "00001 1/2 device-2*"],
    ),
    SyncCase(
        "75 delete-redundant-slice",
        (indexed(0, D1), stored(f"00000-{DRIVER}-{NODE}-x", D1)),
        one_pool(*slices(D1)),
        (0, 0, 1),
        ["00000 1/1 device-1"],
    ),
    SyncCase("76 update-slice", (indexed(0, D1),), one_pool(*slices(C1)), (0, 1, 0), ["00000 1/1 device-1*"]),
    SyncCase(
        "77 update-slice-many-devices",
        (indexed(0, D1, D2),),
        one_pool(Slice(devices=(D1, C2))),
        (0, 1, 0),
        ["00000 1/1 device-1,device-2*"],
    ),
    SyncCase(
        "78 three-slices-no-change",
        THREE,
        one_pool(*slices(D1, D2, D3)),
        (0, 0, 0),
        ["00000 1/3 device-1", "00001 1/3 device-2", "00002 1/3 device-3"],
    ),
    SyncCase(
        "79 several-generations",
        (stored("a", D1), stored("b", D1, generation=2), stored("c", D1)),
        one_pool(*slices(D1)),
        (1, 0, 3),
        ["00000 3/1 device-1"],
    ),
    SyncCase(
        "80 three-slices-one-changed",
        THREE,
        one_pool(*slices(D1, C2, D3)),
        (0, 1, 0),
        ["00000 1/3 device-1", "00001 1/3 device-2*", "00002 1/3 device-3"],
    ),
    SyncCase(
        "81 three-slices-two-changed",
        THREE,
        one_pool(*slices(D1, C2, C3)),
        (0, 3, 0),
        ["00000 2/3 device-1", "00001 2/3 device-2*", "00002 2/3 device-3*"],
    ),
    SyncCase(
        "82 three-slices-one-removed",
        THREE,
        one_pool(*slices(D1, D2)),
        (0, 2, 1),
        ["00000 2/2 device-1", "00001 2/2 device-2"],
    ),
    SyncCase(
        "83 three-slices-one-added",
        THREE,
        one_pool(*slices(D1, D2, D3, D4)),
        (1, 3, 0),
        ["00000 2/4 device-1", "00001 2/4 device-2", "00002 2/4 device-3", "00003 2/4 device-4"],
    ),
    SyncCase(
        "98 migration-from-random-names",
        (stored("x", D1, count=3), stored("y", D2, count=3), stored("z", D3, count=3)),
        one_pool(*slices(D1, D2, D3)),
        (3, 0, 3),
        ["00000 2/3 device-1", "00001 2/3 device-2", "00002 2/3 device-3"],
    ),
    SyncCase(
        "99 migration-mixed",
        (stored("x", D1, count=3), indexed(1, D2, count=3), stored("z", D3, count=3)),
        one_pool(*slices(D1, D2, D3)),
        (2, 1, 2),
        ["00000 2/3 device-1", "00001 2/3 device-2", "00002 2/3 device-3"],
    ),
    SyncCase(
        "two slices become one: no new generation",
        (indexed(0, D1, count=2), indexed(1, D2, count=2)),
        one_pool(*slices(D1)),
        (0, 1, 1),
        ["00000 1/1 device-1"],
    ),
    SyncCase(
        "the driver asks for a generation",
        (indexed(0, D1),),
        one_pool(*slices(D1), generation=7),
        (0, 1, 0),
        ["00000 7/1 device-1"],
    ),
    SyncCase(
        "devices in another order are a change",
        (indexed(0, D1, D2),),
        one_pool(Slice(devices=(D2, D1))),
        (0, 1, 0),
        ["00000 1/1 device-2,device-1"],
    ),
    SyncCase(
        "quantities are equal by value, empty lists by being empty",
        (indexed(0, device("device-1", capacity={"memory": {"value": "1Gi"}}, taints=[])),),
        one_pool(Slice(devices=(device("device-1", capacity={"memory": {"value": "1024Mi"}}),))),
        (0, 0, 0),
        ["00000 1/1 device-1"],
    ),
    SyncCase(
        "a slice of an older generation is replaced",
        (indexed(0, D1, count=2), indexed(1, D2, generation=2, count=2)),
        one_pool(*slices(D1, D2)),
        (1, 1, 1),
        ["00000 3/2 device-1", "00001 3/2 device-2"],
    ),
    SyncCase("a pool without slices", (indexed(0, D1),), one_pool(), (0, 0, 1), []),
]


def _shape(each: v1.ResourceSlice) -> str:
    devices = ",".join(x.name + "*" * bool(x.attributes) for x in each.spec.devices)
    pool = each.spec.pool
    return f"{each.metadata.name[:5]} {pool.generation}/{pool.resource_slice_count} {devices}"


@scenario(66, 67, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 98, 99)
@pytest.mark.parametrize("sync_case", SYNC_CASES, ids=lambda sync_case: sync_case.name)
async def test_sync_makes_the_fewest_writes(cluster: Cluster, sync_case: SyncCase) -> None:
    await cluster.create(*sync_case.initial)
    async with cluster.controller(sync_case.desired, sync_delay=0.0) as controller:
        if not sync_case.desired.pools:
            await cluster.until_names(0)
            await controller.wait_synced()
        assert writes(controller) == sync_case.writes
        assert [_shape(each) for each in await cluster.slices()] == sync_case.shapes
        controller.update(sync_case.desired)
        await controller.wait_synced()
        assert writes(controller) == sync_case.writes
    assert cluster.errors == []


@scenario(66)
async def test_new_slice_has_owner_and_node_name(cluster: Cluster) -> None:
    async with cluster.controller(one_pool(*slices(D1))):
        (found,) = await cluster.slices()
    assert found.metadata.generate_name == f"00000-{DRIVER}-{NODE}-"
    (reference,) = found.metadata.owner_references
    assert (reference.api_version, reference.kind, reference.name) == ("v1", "Node", NODE)
    assert (reference.uid, reference.controller) == (cluster.node.metadata.uid, True)
    assert reference.block_owner_deletion is None
    assert (found.spec.node_name, found.spec.all_nodes) == (NODE, None)


@scenario(68)
async def test_taint_keeps_its_stored_time(cluster: Cluster) -> None:
    await cluster.create(indexed(0, tainted(taint("a.example.com/k", time=TIME))))
    async with cluster.controller(one_pool(*slices(tainted(taint("a.example.com/k"))))) as controller:
        assert writes(controller) == (0, 0, 0)


@scenario(69)
async def test_new_taint_gets_a_time_and_old_taint_keeps_its_time(cluster: Cluster) -> None:
    await cluster.create(indexed(0, tainted(taint("a.example.com/old", time=TIME))))
    wanted = tainted(
        taint("a.example.com/old"),
        taint("a.example.com/new", v1.NO_SCHEDULE),
        taint("a.example.com/timed", time=TIME + timedelta(microseconds=400_000)),
    )
    async with cluster.controller(one_pool(*slices(wanted))) as controller:
        assert writes(controller) == (0, 1, 0)
        (found,) = await cluster.slices()
        old, new, timed = found.spec.devices[0].taints
        assert found.spec.pool.generation == 1
        assert (old.time_added, timed.time_added) == (TIME, TIME)
        assert new.time_added is not None
        assert new.time_added > TIME
        controller.update(one_pool(*slices(wanted)))
        await controller.wait_synced()
        assert writes(controller) == (0, 1, 0)


async def test_taint_keeps_its_time_when_its_device_changes_slice(cluster: Cluster) -> None:
    """Pods tolerate a taint for a time that starts then."""
    await cluster.create(indexed(0, tainted(taint("a.example.com/old", time=TIME))))
    wanted = one_pool(*slices(D1, tainted(taint("a.example.com/old"))))
    async with cluster.controller(wanted):
        found = await cluster.slices()
    assert found[1].spec.devices[0].taints[0].time_added == TIME


def _drop(*fields: str) -> Callable[[Plain], None]:
    def drop(spec: Plain) -> None:
        for each in spec.get("devices") or ():
            for field in fields:
                each.pop(field, None)

    return drop


def _drop_partitions(spec: Plain) -> None:
    _drop("consumesCounters", "nodeName")(spec)
    spec.pop("sharedCounters", None)
    if spec.pop("perDeviceNodeSelection", None):
        spec["allNodes"] = True  # a slice needs a node selection


@scenario(70, 71, 93)
@pytest.mark.parametrize(
    ("wanted", "fields", "feature"),
    [
        (tainted(taint("a.example.com/k")), ("taints",), "DRADeviceTaints"),
        (device(allowMultipleAllocations=True), ("allowMultipleAllocations",), "DRAConsumableCapacity"),
        (BINDING, ("bindsToNode", "bindingConditions", "bindingFailureConditions"), "DRADeviceBindingConditions"),
        (device(attributes={"a": {"bool": True}}), ("attributes",), "unknown"),
    ],
    ids=["70 drop-taints", "71 drop-consumable-capacity-field", "93 drop-binding-conditions", "unknown"],
)
async def test_dropped_fields_are_reported_once_and_not_written_again(
    cluster: Cluster, wanted: v1.Device, fields: tuple[str, ...], feature: str
) -> None:
    cluster.drop_fields(_drop(*fields))
    await cluster.create(indexed(0, device()))
    async with cluster.controller(one_pool(*slices(wanted))) as controller:
        assert writes(controller) == (0, 1, 0)
        (found,) = await cluster.slices()
        assert found.spec.devices == (device(),)
        controller.update(one_pool(*slices(wanted)))
        await controller.wait_synced()
        assert writes(controller) == (0, 1, 0)
        assert feature in controller.problem
        controller.update(one_pool(*slices(device())))
        await controller.wait_synced()
        assert controller.problem == ""
    assert cluster.errors == [
        'update ResourceSlice: pool "pool", slice #0: some fields were dropped by the apiserver,'
        f" probably because these features are disabled: {feature}"
    ]


async def test_device_is_never_published_without_its_taint(cluster: Cluster) -> None:
    """The server is probed for dropped taints before: otherwise the scheduler could allocate the device meanwhile."""
    cluster.drop_fields(_drop("taints"))

    def remove_taints(error: Exception, _: str) -> None:
        assert isinstance(error, DroppedFieldsError)
        assert error.loses_taints
        controller.update(without)

    without = one_pool(Slice(devices=(D1,)))
    async with cluster.controller(without, tries_taints=True, on_error=remove_taints) as controller:
        controller.update(one_pool(Slice(devices=(D1, tainted(taint("a.example.com/k"))))))
        await controller.wait_synced()
        assert writes(controller) == (1, 0, 0)
        (found,) = await cluster.slices()
        assert found.spec.devices == (D1,)
        assert controller.problem == ""


async def test_failed_dry_run_does_not_prevent_publishing(cluster: Cluster) -> None:
    kept = tainted(taint("a.example.com/k"))
    cluster.faults.refuse("POST", 400)
    async with cluster.controller(one_pool(*slices(kept)), tries_taints=True) as controller:
        assert writes(controller) == (1, 0, 0)
        (found,) = await cluster.slices()
        assert found.spec.devices[0].taints
    assert cluster.errors == []


async def test_server_that_keeps_taints_is_probed_once(cluster: Cluster) -> None:
    async with cluster.controller(
        one_pool(*slices(tainted(taint("a.example.com/k")))), tries_taints=True
    ) as controller:
        controller.update(one_pool(*slices(tainted(taint("a.example.com/other")))))
        await controller.wait_synced()
        assert writes(controller) == (1, 1, 0)
    asked = [each.partition(" ")[0] for each in cluster.faults.requests if "resourceslices" in each and each[0] == "P"]
    assert asked == ["POST", "POST", "PUT"]


@scenario(91)
async def test_dropped_partitions_are_reported_for_every_slice(cluster: Cluster) -> None:
    cluster.drop_fields(_drop_partitions)
    async with cluster.controller(PARTITIONED, DEPLOYMENT) as controller:
        assert writes(controller) == (2, 0, 0)
    assert cluster.errors == [
        f'create ResourceSlice: pool "pool", slice #{index}: some fields were dropped by the apiserver,'
        " probably because these features are disabled: DRAPartitionableDevices"
        for index in (0, 1)
    ]


async def test_fields_added_by_a_newer_server_are_not_removed(cluster: Cluster) -> None:
    """Fields that this version does not know are no difference."""

    def add(spec: Plain) -> None:
        for each in spec.get("devices") or ():
            each["newer"] = {"a": 1}

    cluster.drop_fields(add)
    async with cluster.controller(one_pool(*slices(D1))) as controller:
        controller.update(one_pool(*slices(D1)))
        await controller.wait_synced()
        assert writes(controller) == (1, 0, 0)
    assert cluster.errors == []


@scenario(84, 85, 86, 87, 88)
@pytest.mark.parametrize(
    ("desired", "owner", "options", "place"),
    [
        (one_pool(*slices(D1), all_nodes=True), None, {}, {"all_nodes": True}),
        (one_pool(*slices(D1), node_selector=HERE), DEPLOYMENT, {}, {"node_selector": HERE}),
        (one_pool(*slices(D1), all_nodes=True), Owner.node(NODE), {"reconcile_pool": "pool"}, {"all_nodes": True}),
        (
            one_pool(*slices(D1), node_selector=HERE),
            Owner.node(NODE),
            {"reconcile_pool": "pool"},
            {"node_selector": HERE},
        ),
        (
            one_pool(Slice(devices=(device(nodeName="here"),), per_device_node_selection=True)),
            Owner.node(NODE),
            {"reconcile_pool": "pool"},
            {"per_device_node_selection": True},
        ),
    ],
    ids=["84 for all nodes", "85 for some nodes", "86 reconcile a pool", "87 with a selector", "88 per device"],
)
async def test_non_local_pool_has_the_desired_node_selection(
    cluster: Cluster, desired: DriverResources, owner: Owner | None, options: dict[str, Any], place: dict[str, Any]
) -> None:
    async with cluster.controller(desired, owner, **options) as controller:
        assert writes(controller) == (1, 0, 0)
        (found,) = await cluster.slices()
        controller.update(desired)
        await controller.wait_synced()
        assert writes(controller) == (1, 0, 0)
    assert found.spec.node_name is None
    where = ("all_nodes", "node_selector", "per_device_node_selection")
    assert {name: value for name in where if (value := getattr(found.spec, name)) is not None} == place
    names = [each.name for each in found.metadata.owner_references]
    assert names == ([] if owner is None else ["owner"])
    assert found.metadata.generate_name == f"00000-{DRIVER}-" + ("" if owner is None else "owner-")


@scenario(89)
async def test_changed_node_selector_is_one_update(cluster: Cluster) -> None:
    await cluster.create(indexed(0, D1, node_selector=HERE))
    async with cluster.controller(one_pool(*slices(D1), node_selector=THERE), DEPLOYMENT) as controller:
        assert writes(controller) == (0, 1, 0)
        (found,) = await cluster.slices()
    assert found.spec.node_selector == THERE
    assert found.spec.pool.generation == 1


@scenario(90, 92)
@pytest.mark.parametrize(
    ("desired", "count"),
    [(PARTITIONED, 2), (one_pool(Slice(devices=(BINDING,), per_device_node_selection=None), all_nodes=True), 1)],
    ids=["90 create-partitionable-devices", "92 create-device-with-binding-condition"],
)
async def test_partition_and_binding_fields_are_stored(cluster: Cluster, desired: DriverResources, count: int) -> None:
    async with cluster.controller(desired, DEPLOYMENT) as controller:
        assert writes(controller) == (count, 0, 0)
        found = await cluster.slices()
    assert [each.spec.devices for each in found] == [each.devices for each in desired.pools["pool"].slices]
    assert [each.spec.shared_counters for each in found] == [x.shared_counters for x in desired.pools["pool"].slices]
    assert cluster.errors == []


def _consuming(counter_set: str, counter: str) -> Slice:
    consumes = [{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}]
    return Slice(devices=(device(consumesCounters=consumes),))


_COUNTERS = Slice(shared_counters=(from_dict(v1.CounterSet, {**COUNTERS, "name": "counterset"}),))


@scenario(94, 95, 96, 97)
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ((_COUNTERS, _COUNTERS), 'found duplicate counter set "counterset" in pool "pool"'),
        (slices(device(), device()), 'found duplicate device "device" in pool "pool"'),
        ((_consuming("counterset", "mem"),), 'counter set "counterset" referenced by device "device" not found'),
        (
            (_COUNTERS, _consuming("counterset", "cpu")),
            'counter "cpu" referenced by device "device" not found in counter set "counterset"',
        ),
    ],
    ids=["94 counter sets", "95 devices", "96 unknown counter set", "97 unknown counter"],
)
async def test_invalid_pool_is_not_published(cluster: Cluster, content: tuple[Slice, ...], complaint: str) -> None:
    await cluster.create(indexed(0, D1))
    async with cluster.controller(one_pool(*content)) as controller:
        assert writes(controller) == (0, 0, 0)
        assert cluster.errors == [f"pool validation failed: {complaint}"]
        assert (controller.is_stored, controller.problem) == (False, f"pool validation failed: {complaint}")
        controller.update(one_pool(*slices(C1)))
        await controller.wait_synced()
        assert writes(controller) == (0, 1, 0)
        assert (controller.is_stored, controller.problem) == (True, "")
