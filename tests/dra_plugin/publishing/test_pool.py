"""The pool: every server accepts it; changes when a device becomes unhealthy, appears or disappears."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dra_plugin.publishing.offers import MAX_DEVICES, Offers
from dra_plugin.publishing.pool import driver_resources, label_value
from dra_plugin.publishing.slices.desired import Pool, Slice
from hostdevices import HEALTHY, Device, Health, Version
from resourceapi.objects import v1
from resources.resource import Capacity, DraOptions, Partition, Resource, TaintPolicy
from tests.checkpoint.build import lease
from tests.dra_plugin.offering import (
    DRIVER,
    HALVES,
    NODE,
    UNHEALTHY,
    device,
    gpus,
    offering,
    pool,
    published,
    resource,
)
from tests.dra_scenarios import scenario

GPU = "example.com/gpu"
UNHEALTHY_TAINT = v1.DeviceTaint(
    key=f"{DRIVER}/unhealthy", value="it-does-not-answer-on-the-PCI-bus", effect="NoSchedule"
)
IN_USE = v1.DeviceTaint(key=f"{DRIVER}/in-use", value="device-plugin", effect="NoSchedule")


def changed(before: Pool, after: Pool) -> list[int]:
    assert len(before.slices) == len(after.slices)
    return [i for i, (x, y) in enumerate(zip(before.slices, after.slices, strict=True)) if x != y]


def test_pool_without_devices_has_one_empty_slice() -> None:
    assert driver_resources(Offers([]), NODE, DRIVER).pools == {NODE: Pool(slices=(Slice(),))}
    assert pool(Offers([resource()])).slices == (Slice(),)


def test_slice_has_at_most_the_devices_that_can_all_have_taints() -> None:
    slices = pool(offering([resource()], {GPU: gpus(130)})).slices
    assert [len(x.devices) for x in slices] == [MAX_DEVICES, MAX_DEVICES, 2]
    assert [x.name for one in slices for x in one.devices] == [f"gpu-{i:04}" for i in range(130)]


def test_unavailable_device_has_a_noschedule_taint() -> None:
    """Even if the resource's taint for unhealthy devices evicts: a current holder keeps the device."""
    lacking = structs.replace(gpus(1)[0], unavailable="it has no mac, which env.MAC of x/y uses")
    offers = offering([structs.replace(resource(), dra=DraOptions(taint="NoExecute"))], {GPU: [lacking]})
    (taint,) = published(offers)["gpu-0000"].taints
    assert (taint.key, taint.effect) == (f"{DRIVER}/unavailable", "NoSchedule")


def test_withheld_device_has_a_noschedule_taint() -> None:
    offers = offering([resource()], {GPU: [structs.replace(gpus(1)[0], withheld="withheld: fan (left)")]})
    (taint,) = published(offers)["gpu-0000"].taints
    assert (taint.key, taint.value, taint.effect) == (f"{DRIVER}/withheld", "withheld-fan", "NoSchedule")


def test_health_change_of_one_device_changes_one_slice() -> None:
    devices = gpus(300)
    offers = offering([resource()], {GPU: devices})
    before = pool(offers)
    devices[200] = structs.replace(devices[200], health=UNHEALTHY)
    assert offers.update({GPU: devices})
    after = pool(offers)
    assert changed(before, after) == [3]
    assert published(offers)["gpu-0200"].taints == (UNHEALTHY_TAINT,)


def test_devices_keep_their_slices_when_all_become_unhealthy() -> None:
    offers = offering([resource()], {GPU: gpus(200)})
    before = [[x.name for x in one.devices] for one in pool(offers).slices]
    offers.update({GPU: gpus(200, UNHEALTHY)})
    assert [[x.name for x in one.devices] for one in pool(offers).slices] == before


def test_removed_device_changes_one_slice_and_its_return_restores_it() -> None:
    devices = gpus(300)
    offers = offering([resource()], {GPU: devices})
    before = pool(offers)
    offers.update({GPU: devices[:70] + devices[71:]})
    assert changed(before, pool(offers)) == [1]
    offers.update({GPU: devices})
    assert pool(offers) == before


@pytest.mark.parametrize(
    ("policy", "taints"),
    [
        ("none", ()),
        ("NoSchedule", (UNHEALTHY_TAINT,)),
        ("NoExecute", (structs.replace(UNHEALTHY_TAINT, effect="NoExecute"),)),
    ],
)
def test_unhealthy_device_has_the_taint_of_its_resource(
    policy: TaintPolicy, taints: tuple[v1.DeviceTaint, ...]
) -> None:
    offers = offering([resource(dra=DraOptions(taint=policy))], {GPU: gpus(1, UNHEALTHY)})
    assert published(offers)["gpu-0000"].taints == taints


def test_gone_device_is_tainted_even_with_taint_policy_none() -> None:
    offers = offering([resource(dra=DraOptions(taint="none"))], {GPU: gpus(1)})
    offers.update({}, leased={"gpu-0000"})
    (taint,) = published(offers)["gpu-0000"].taints
    assert (taint.value, taint.effect) == ("it-is-gone", "NoSchedule")


def test_device_leased_by_the_device_plugin_is_tainted_as_in_use() -> None:
    offers = Offers([resource(api="both", dra=DraOptions(taint="NoExecute"))], lambda _: lease("gpu-0000"))
    offers.update({GPU: gpus(1, UNHEALTHY)})
    assert published(offers)["gpu-0000"].taints == (structs.replace(UNHEALTHY_TAINT, effect="NoExecute"), IN_USE)


def test_tainted_device_is_omitted_unless_held_when_the_server_drops_taints() -> None:
    offers = offering([resource()], {GPU: [*gpus(2, UNHEALTHY), device("gpu-9")]})
    found = driver_resources(offers, NODE, DRIVER, {"gpu-0001"}, without_taints=True)
    (only,) = found.pools[NODE].slices
    assert [x.name for x in only.devices] == ["gpu-0001", "gpu-9"]


@scenario(274)
def test_device_has_the_binding_conditions_of_its_resource() -> None:
    options = DraOptions(binding_conditions=("example.com/ready",), binding_failure_conditions=("example.com/failed",))
    shown = published(offering([resource(dra=options)], {GPU: gpus(1)}))["gpu-0000"]
    assert shown.binding_conditions == ("example.com/ready",)
    assert shown.binding_failure_conditions == ("example.com/failed",)
    assert shown.allow_multiple_allocations is None


@scenario(274)
def test_partitions_consume_counters_in_separate_slices() -> None:
    offers = offering([resource(dra=HALVES)], {GPU: gpus(9)})
    slices = pool(offers).slices
    assert [(len(x.shared_counters), len(x.devices)) for x in slices] == [(8, 0), (1, 0), (0, 27)]
    (half,) = published(offers)["gpu-0003-half-0"].consumes_counters
    assert half.counter_set == "gpu-0003"
    assert {name: str(x.value) for name, x in half.counters.items()} == {"memory": "40Gi", "slices": "3"}


def test_pf_and_its_vfs_consume_one_counter() -> None:
    physical = device("nic-pf", sriov_peers=("nic-vf-0", "nic-vf-1"))
    virtual = [device(f"nic-vf-{i}", sriov_peers=("nic-pf",)) for i in range(2)]
    offers = offering([resource("x/pf"), resource("x/vf")], {"x/pf": [physical], "x/vf": virtual})
    shown = published(offers)
    drawn = {
        name: [str(c.value) for use in x.consumes_counters for c in use.counters.values()] for name, x in shown.items()
    }
    assert drawn == {"nic-pf": ["65536"], "nic-vf-0": ["1"], "nic-vf-1": ["1"]}
    assert len({use.counter_set for x in shown.values() for use in x.consumes_counters}) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("hot", "hot"),
        ("edge: 101 °C, critical is 100 °C", "edge-101-C-critical-is-100-C"),
        ("(all of it)", "all-of-it"),
        ("a" * 70, "a" * 63),
        (f"{'a' * 40} {'b' * 40}", "a" * 40),
        (f"{'a' * 40} {'b' * 22} c", f"{'a' * 40}-{'b' * 22}"),
        ("§%&", ""),
    ],
)
def test_reason_is_converted_to_a_label_value(text: str, value: str) -> None:
    assert label_value(text) == value


NAMES = [f"d{i}" for i in range(8)] + ["pci-0000-00-00-0", "x" * 63]
RESOURCES = ["example.com/a", "example.com/b", "example.com/c"]
VALUES = st.one_of(
    st.booleans(), st.integers(), st.text(max_size=80), st.builds(Version, st.sampled_from(["1.2.3", "1"]))
)
AMOUNTS = st.sampled_from(["1", "2", "4", "8"])
OPTIONS = st.one_of(
    st.builds(
        DraOptions,
        taint=st.sampled_from(["none", "NoSchedule", "NoExecute"]),
        capacity=st.dictionaries(st.sampled_from(["cores", "memory"]), st.builds(Capacity, AMOUNTS)),
        binding_conditions=st.just(("a",)),
        binding_failure_conditions=st.just(("b",)),
    ),
    st.builds(
        DraOptions,
        counters=st.just({"c": "8"}),
        partitions=st.lists(
            st.builds(Partition, st.sampled_from("pq"), st.fixed_dictionaries({"c": AMOUNTS}), st.integers(1, 3)),
            max_size=2,
            unique_by=lambda partition: partition.name,
        ).map(tuple),
    ),
)


@st.composite
def inventories(draw: st.DrawFn, names: tuple[str, ...]) -> dict[str, list[Device]]:
    """More inputs than real assignments: wholes beside their parts, virtual functions of anything."""
    ids = st.sampled_from(NAMES)
    found: dict[str, list[Device]] = {}
    for i in draw(st.lists(ids, unique=True)):
        attributes = draw(st.dictionaries(st.text("abc_/.-é", min_size=1, max_size=40), VALUES, max_size=40))
        one = Device(
            id=i,
            kind=draw(st.sampled_from(["gpu", "nic"])),
            name=i,
            attributes=attributes,
            parents=tuple(draw(st.lists(ids, max_size=2))),
            children=tuple(draw(st.lists(ids, max_size=2))),
            sriov_peers=tuple(draw(st.lists(ids, max_size=2))),
            health=draw(st.sampled_from([HEALTHY, UNHEALTHY, Health(False, "")])),
        )
        found.setdefault(draw(st.sampled_from(names)), []).append(one)
    return found


@st.composite
def resources(draw: st.DrawFn) -> list[Resource]:
    found = []
    for name in RESOURCES:
        options = draw(OPTIONS)
        shares = 1 if options.partitions else draw(st.integers(1, 3))
        if shares > 1:
            options = structs.replace(options, capacity={"cores": Capacity("4", default="1")})
        found.append(resource(name, shares=shares, dra=options))
    return found


@given(resources(), st.data())
def test_any_inventory_gives_a_valid_pool_and_health_changes_one_slice(
    offered: list[Resource], data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.sampled_from(NAMES)))
    offers = Offers(offered, lambda x: lease(x.device.id) if x.device.id in kept else None)
    for _ in range(3):
        assigned = data.draw(inventories(tuple(RESOURCES)))
        leased = data.draw(st.sets(st.sampled_from([x.name for x in offers] or NAMES), max_size=3))
        offers.update(assigned, leased=leased)
        before = pool(offers)
        if whole := sorted(
            x.id for devices in assigned.values() for x in devices if not _has_parts(x, assigned, offered)
        ):
            chosen = data.draw(st.sampled_from(whole))
            flipped = {name: [_flipped(x) if x.id == chosen else x for x in xs] for name, xs in assigned.items()}
            offers.update(flipped, leased=leased)
            assert len(changed(before, pool(offers))) <= 1


def _has_parts(device: Device, assigned: dict[str, list[Device]], offered: list[Resource]) -> bool:
    return any(device in assigned.get(x.name, ()) and x.dra.partitions for x in offered)


def _flipped(device: Device) -> Device:
    return structs.replace(device, health=UNHEALTHY if device.health.healthy else HEALTHY)
