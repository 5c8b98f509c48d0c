"""The rules in the comments of the prototype's types, one by one (allocator.md 6.3)."""

from typing import Any

import pytest

from controlplane.k8srm.types import API_VERSION
from tests.controlplane.k8srm.build import (
    Plain,
    allocated_claim,
    claim,
    device,
    device_class,
    devices_of,
    pool,
    reasons_of,
    resource,
    solve,
)

C = {"deviceClass": "c"}
CLASS = device_class("c", "d")
PAIR = pool("p", "n", [device("a"), device("b")])


def memory_device(name: str, amount: str = "80Gi", block: str | None = None) -> Plain:
    """A device with memory."""
    return device(name, resources=[resource("memory", amount, block)])


def memory_request(amount: str, **more: Any) -> Plain:
    return {**C, "requests": {"memory": amount}, **more}


# 1. classes, types, drivers, nodes


def test_class_selects_devices_of_its_driver() -> None:
    other = pool("other", "n", [device("x")], driver="e")
    assert devices_of(solve(CLASS, other, PAIR, claim("x", C))) == [["p/a"]]


def test_device_type_selects_devices_of_all_its_classes() -> None:
    classes = [device_class("c", "d"), device_class("e", "e", constraints="device.fast == 1")]
    pools = [PAIR, pool("q", "n", [device("slow", {"fast": 0}), device("fast", {"fast": 1})], driver="e")]
    outcome = solve(*classes, *pools, claim("x", {"deviceType": "gpu", "requests": {"count": 3}}))
    assert devices_of(outcome) == [["p/a", "p/b", "q/fast"]]


def test_class_without_driver_selects_all_drivers_of_its_type() -> None:
    vlan = device_class("vlan", deviceType="vlan")
    drivers: list[Plain] = [
        {"apiVersion": API_VERSION, "kind": "DeviceDriver", "metadata": {"name": name}, "deviceTypes": types}
        for name, types in (("d", ["gpu"]), ("e", ["gpu", "vlan"]))
    ]
    pools = [PAIR, pool("q", "n", [device("v")], driver="e")]
    assert devices_of(solve(vlan, *drivers, *pools, claim("x", {"deviceClass": "vlan"}))) == [["q/v"]]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"deviceClass": "z"}, 'device class "z" not found'),
        ({"deviceType": "z"}, 'no device class provides device type "z"'),
        ({"deviceClass": "c", "deviceType": "z"}, 'device class "c" is not of type "z"'),
        ({**C, "requests": {"count": 33}}, "33 devices are more than the 32 that a claim can hold"),
        ({**C, "requests": {"count": 2}, "limits": {"count": 1}}, "the limit of count is below the request: 1 < 2"),
        ({**C, "requests": {"memory": 2}, "limits": {"memory": 1}}, "the limit of memory is below the request"),
    ],
)
def test_invalid_claim_is_refused_with_reason(wanted: Plain, reason: str) -> None:
    assert reasons_of(solve(CLASS, PAIR, claim("x", wanted))) == [reason]


def test_pool_without_node_serves_every_node() -> None:
    network = pool("network", None, [device("a"), device("b")])
    elsewhere = pool("elsewhere", "m", [device("c")])
    outcome = solve(CLASS, elsewhere, network, claim("x", {**C, "requests": {"count": 3}}))
    assert (outcome.node, len(devices_of(outcome)[0])) == ("m", 3)


def test_allocated_network_device_is_unavailable_on_all_nodes() -> None:
    network = pool("network", None, [device("a")])
    empty = pool("m", "m", [])
    outcome = solve(CLASS, network, empty, allocated_claim("h", ("network", "a", {})), claim("x", C))
    assert reasons_of(outcome) == ["2 pools: no available devices"]


# 2. attributes and constraints


def test_device_attribute_overrides_pool_attribute() -> None:
    shared = [{"name": "model", "stringValue": "old"}]
    mixed = pool("p", "n", [device("a"), device("b", {"model": "new"})], attributes=shared)
    wanted = {**C, "constraints": "device.model == 'new'"}
    assert devices_of(solve(CLASS, mixed, claim("x", wanted))) == [["p/b"]]


def test_device_must_meet_constraints_of_class_and_claim() -> None:
    red = device_class("c", "d", constraints="device.colour == 'red'")
    devices = [
        device("a", {"colour": "red", "size": 1}),
        device("b", {"colour": "blue", "size": 2}),
        device("c", {"colour": "red", "size": 2}),
    ]
    wanted = {**C, "constraints": "device.size == 2"}
    assert devices_of(solve(red, pool("p", "n", devices), claim("x", wanted))) == [["p/c"]]


def test_constraint_error_excludes_only_that_device() -> None:
    devices = [device("a"), device("b", {"size": 2})]
    wanted = {**C, "constraints": "device.size == 2"}
    assert devices_of(solve(CLASS, pool("p", "n", devices), claim("x", wanted))) == [["p/b"]]
    assert reasons_of(solve(CLASS, PAIR, claim("x", wanted))) == [
        "1 pool: error evaluating constraints: no such key: size"
    ]


# 3. counts


def test_default_count_is_one() -> None:
    assert devices_of(solve(CLASS, PAIR, claim("x", C))) == [["p/a"]]


def test_count_limit_does_not_increase_requested_count() -> None:
    assert devices_of(solve(CLASS, PAIR, claim("x", {**C, "limits": {"count": 2}}))) == [["p/a"]]


def test_zero_count_is_satisfied_without_devices() -> None:
    assert devices_of(solve(CLASS, PAIR, claim("x", {**C, "requests": {"count": 0}}))) == [[]]


# 4. amounts


def test_amount_is_rounded_up_to_blocks() -> None:
    assert devices_of(
        solve(CLASS, pool("p", "n", [memory_device("a", "100", "8")]), claim("x", memory_request("13")))
    ) == [["p/a/memory=16"]]


def test_default_block_size_is_one() -> None:
    assert devices_of(
        solve(CLASS, pool("p", "n", [memory_device("a", "100")]), claim("x", memory_request("1500m")))
    ) == [["p/a/memory=2"]]


def test_partial_block_is_not_allocated() -> None:
    outcome = solve(CLASS, pool("p", "n", [memory_device("a", "15", "8")]), claim("x", memory_request("9")))
    assert reasons_of(outcome) == ["unable to satisfy 1 of 1 device requests"]


def test_claims_share_amounts_of_one_device() -> None:
    one = pool("p", "n", [memory_device("a", "10")])
    outcome = solve(CLASS, one, claim("x", memory_request("6")), claim("y", memory_request("4")))
    assert devices_of(outcome) == [["p/a/memory=6"], ["p/a/memory=4"]]
    assert reasons_of(solve(CLASS, one, claim("x", memory_request("6")), claim("y", memory_request("5")))) == [
        "the devices are needed by other claims"
    ]


def test_amount_is_split_over_fewest_devices() -> None:
    three = pool("p", "n", [memory_device("a", "10"), memory_device("b", "10"), memory_device("c", "10")])
    assert devices_of(solve(CLASS, three, claim("x", memory_request("18")))) == [["p/a/memory=9", "p/b/memory=9"]]


def test_amount_is_split_over_requested_number_of_devices() -> None:
    three = pool("p", "n", [memory_device("a", "10"), memory_device("b", "10"), memory_device("c", "10")])
    wanted = {**C, "requests": {"memory": "6", "count": 3}}
    assert devices_of(solve(CLASS, three, claim("x", wanted))) == [["p/a/memory=2", "p/b/memory=2", "p/c/memory=2"]]
    wanted = {**C, "requests": {"memory": "30", "count": 2}}
    assert reasons_of(solve(CLASS, three, claim("x", wanted))) == ["unable to satisfy 2 of 2 device requests"]


def test_smaller_device_provides_smaller_portion() -> None:
    devices = [memory_device("small", "3"), memory_device("large", "10")]
    assert devices_of(solve(CLASS, pool("p", "n", devices), claim("x", memory_request("12")))) == [
        ["p/large/memory=9", "p/small/memory=3"]
    ]


def test_uneven_split_is_used_when_even_split_blocks_other_claim() -> None:
    pair = pool("p", "n", [memory_device("a", "80"), memory_device("b", "80")])
    outcome = solve(
        CLASS, pair, claim("x", memory_request("100")), claim("y", {**memory_request("60"), "limits": {"count": 1}})
    )
    assert devices_of(outcome) == [["p/a/memory=80", "p/b/memory=20"], ["p/b/memory=60"]]


def test_amount_limit_applies_to_sum() -> None:
    blocks = pool("p", "n", [memory_device("a", "100", "8")])
    assert reasons_of(solve(CLASS, blocks, claim("x", memory_request("13", limits={"memory": "15"})))) == [
        "unable to satisfy 1 of 1 device requests"
    ]
    assert devices_of(solve(CLASS, blocks, claim("x", memory_request("13", limits={"memory": "16"})))) == [
        ["p/a/memory=16"]
    ]


def test_count_limit_applies_to_split_amount() -> None:
    pair = pool("p", "n", [memory_device("a", "10"), memory_device("b", "10")])
    assert reasons_of(solve(CLASS, pair, claim("x", memory_request("18", limits={"count": 1})))) == [
        "unable to satisfy 1 of 1 device requests"
    ]


def test_limit_without_request_counts_as_request() -> None:
    assert devices_of(
        solve(CLASS, pool("p", "n", [memory_device("a", "10")]), claim("x", {**C, "limits": {"memory": "4"}}))
    ) == [["p/a/memory=4"]]


def test_device_without_requested_resource_is_excluded() -> None:
    mixed = pool("p", "n", [device("a"), memory_device("b", "10")])
    assert devices_of(solve(CLASS, mixed, claim("x", memory_request("1")))) == [["p/b/memory=1"]]
    assert reasons_of(solve(CLASS, PAIR, claim("x", memory_request("1")))) == ["1 pool: no memory available"]


def test_whole_device_is_not_shared_with_amounts() -> None:
    one = pool("p", "n", [memory_device("a", "10")])
    assert solve(CLASS, one, claim("x", C), claim("y", memory_request("1"))).node is None
    assert solve(CLASS, one, claim("y", memory_request("1")), claim("x", C)).node is None


# 5. resources of pools


def test_devices_consume_pool_resources_in_blocks() -> None:
    slices = [device(name, requests={"slices": "3"}) for name in "abc"]
    for capacity, number in (("8", 2), ("7", 1)):
        shared = pool("p", "n", slices, resources=[resource("slices", capacity, "4")])
        assert solve(CLASS, shared, claim("x", {**C, "requests": {"count": number}})).node == "n"
        assert solve(CLASS, shared, claim("x", {**C, "requests": {"count": number + 1}})).node is None


def test_allocated_devices_reduce_pool_resources() -> None:
    slices = [device(name, requests={"slices": "3"}) for name in "abc"]
    shared = pool("p", "n", slices, resources=[resource("slices", "8")])
    outcome = solve(CLASS, shared, allocated_claim("h", ("p", "a", {})), claim("x", C), claim("y", C))
    assert outcome.results[0].unsatisfied == ("y",)


def test_device_is_unusable_when_pool_lacks_its_resource() -> None:
    faulty = pool("p", "n", [device("a", requests={"slices": "3"}), device("b")])
    assert devices_of(solve(CLASS, faulty, claim("x", C))) == [["p/b"]]
    alone = pool("p", "n", [device("a", requests={"slices": "3"})])
    assert reasons_of(solve(CLASS, alone, claim("x", C))) == [
        "1 pool: device a takes slices, which the pool does not have"
    ]


def test_pool_with_duplicate_device_names_is_unusable() -> None:
    twins = pool("p", "n", [device("a"), device("a")])
    assert reasons_of(solve(CLASS, twins, claim("x", C))) == ["1 pool: two devices of the pool are called a"]
    assert devices_of(solve(CLASS, twins, pool("q", "n", [device("b")]), claim("x", C))) == [["q/b"]]


# 6. matchAttributes


def test_match_attribute_of_detail_applies_to_its_devices() -> None:
    numa = pool("p", "n", [device("a", {"numa": 0}), device("b", {"numa": 1}), device("c", {"numa": 1})])
    wanted = {**C, "requests": {"count": 2}, "matchAttributes": ["numa"]}
    assert devices_of(solve(CLASS, numa, claim("x", wanted))) == [["p/b", "p/c"]]


def test_match_attribute_of_claim_applies_to_all_its_details() -> None:
    numa = pool("p", "n", [device("a", {"numa": 0}), device("b", {"numa": 1}), device("c", {"numa": 1})])
    assert devices_of(solve(CLASS, numa, claim("x", C, C))) == [["p/a", "p/b"]]
    assert devices_of(solve(CLASS, numa, claim("x", C, C, matchAttributes=["numa"]))) == [["p/b", "p/c"]]


def test_match_attribute_applies_across_drivers() -> None:
    nics = pool("nics", "n", [device("nic0", {"numa": 0}), device("nic1", {"numa": 1})], driver="e")
    gpus = pool("gpus", "n", [device("gpu", {"numa": 1})])
    both = claim("x", {"deviceClass": "nic"}, C, matchAttributes=["numa"])
    outcome = solve(CLASS, device_class("nic", "e", deviceType="nic"), nics, gpus, both)
    assert devices_of(outcome) == [["nics/nic1", "gpus/gpu"]]


def test_device_without_match_attribute_is_excluded() -> None:
    wanted = {**C, "requests": {"count": 2}, "matchAttributes": ["numa"]}
    assert solve(CLASS, PAIR, claim("x", wanted)).node is None


def test_match_attribute_values_need_same_type() -> None:
    wanted = {**C, "requests": {"count": 2}, "matchAttributes": ["v"]}

    def values(*pair: Plain) -> Plain:
        return pool("p", "n", [device(name, {"v": value}) for name, value in zip("ab", pair, strict=True)])

    assert solve(CLASS, values({"stringValue": "1"}, {"intValue": 1}), claim("x", wanted)).node is None
    assert solve(CLASS, values({"stringValue": "1.0.0"}, {"semVerValue": "1.0.0"}), claim("x", wanted)).node is None
    assert solve(CLASS, values({"quantityValue": "1Ki"}, {"quantityValue": "1024"}), claim("x", wanted)).node == "n"


# 7. oneOf


def test_first_feasible_alternative_is_chosen() -> None:
    choice = {"oneOf": [{**C, "requests": {"count": 3}}, {**C, "requests": {"count": 2}}, C]}
    assert devices_of(solve(CLASS, PAIR, claim("x", choice))) == [["p/a", "p/b"]]


def test_lesser_alternative_is_chosen_when_later_request_needs_device() -> None:
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    assert devices_of(solve(CLASS, PAIR, claim("x", choice, C))) == [["p/a", "p/b"]]
    assert devices_of(solve(CLASS, PAIR, claim("x", choice), claim("y", C))) == [["p/a"], ["p/b"]]


def test_better_alternative_is_preferred_to_fewer_pools() -> None:
    split = [pool("p", "n", [device("a")]), pool("q", "n", [device("b")])]
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    assert devices_of(solve(CLASS, *split, claim("x", choice))) == [["p/a", "q/b"]]


# 8. admin access

ADMIN = device_class("admin", "d", adminAccess=True)


def test_admin_access_includes_allocated_devices_and_takes_none() -> None:
    wanted = {"deviceClass": "admin", "requests": {"count": 2}}
    all_allocated = allocated_claim("h", ("p", "a", {}), ("p", "b", {}))
    assert devices_of(solve(CLASS, ADMIN, PAIR, all_allocated, claim("x", wanted))) == [["p/a", "p/b"]]
    outcome = solve(CLASS, ADMIN, PAIR, claim("x", wanted), claim("y", {**C, "requests": {"count": 2}}))
    assert devices_of(outcome) == [["p/a", "p/b"], ["p/a", "p/b"]]


def test_admin_access_ignores_exhausted_resources() -> None:
    full = pool("p", "n", [device("a", requests={"s": "1"}), memory_device("b", "1")], resources=[resource("s", "0")])
    taken = allocated_claim("h", ("p", "b", {"memory": "1"}))
    wanted = {"deviceClass": "admin", "requests": {"count": 2}}
    assert devices_of(solve(CLASS, ADMIN, full, taken, claim("x", wanted))) == [["p/a", "p/b"]]


def test_admin_allocation_leaves_devices_available() -> None:
    monitored = allocated_claim("h", ("p", "a", {}), ("p", "b", {}), admin=True)
    assert devices_of(solve(CLASS, PAIR, monitored, claim("x", C))) == [["p/a"]]


def test_device_type_does_not_select_admin_class() -> None:
    outcome = solve(ADMIN, PAIR, claim("x", {"deviceType": "gpu"}))
    assert reasons_of(outcome) == ['classes of type "gpu" give admin access and must be named: admin']


def test_privileged_claim_has_admin_access_through_any_class() -> None:
    outcome = solve(CLASS, PAIR, allocated_claim("h", ("p", "a", {})), claim("x", C, kind="DevicePrivilegedClaim"))
    assert devices_of(outcome) == [["p/a"]]


# 9. existing allocations, all or nothing


def test_allocated_device_is_unavailable() -> None:
    assert devices_of(solve(CLASS, PAIR, allocated_claim("h", ("p", "a", {})), claim("x", C))) == [["p/b"]]
    assert reasons_of(solve(CLASS, PAIR, allocated_claim("h", ("p", "a", {}), ("p", "b", {})), claim("x", C))) == [
        "1 pool: no available devices"
    ]


def test_allocated_amount_is_unavailable() -> None:
    one = pool("p", "n", [memory_device("a", "10", "4")])
    partly = allocated_claim("h", ("p", "a", {"memory": "4"}))
    assert devices_of(solve(CLASS, one, partly, claim("x", memory_request("4")))) == [["p/a/memory=4"]]
    assert solve(CLASS, one, partly, claim("x", memory_request("5"))).node is None
    assert reasons_of(solve(CLASS, one, partly, claim("x", C))) == ["1 pool: no available devices"]


def test_all_claims_need_devices_of_one_node() -> None:
    pools = [pool("p", "n", [device("a")]), pool("q", "m", [device("b")])]
    outcome = solve(CLASS, *pools, claim("x", C), claim("y", C))
    assert outcome.node is None
    assert [result.unsatisfied for result in outcome.results] == [("y",), ("y",)]
    assert reasons_of(outcome) == ["the devices are needed by other claims"] * 2


def test_earlier_claim_leaves_only_suitable_device_to_later_claim() -> None:
    """The first claim could use any device, but does not take the only one that the second can use."""
    devices = pool("p", "n", [device("red", {"colour": "red"}), device("blue", {"colour": "blue"})])
    wanted = {**C, "constraints": "device.colour == 'red'"}
    assert devices_of(solve(CLASS, devices, claim("x", C), claim("y", wanted))) == [["p/blue"], ["p/red"]]


# preferences


def test_fewest_pools_are_preferred() -> None:
    pools = [pool("p", "n", [device("a")]), pool("q", "n", [device("b"), device("c")])]
    assert devices_of(solve(CLASS, *pools, claim("x", {**C, "requests": {"count": 2}}))) == [["q/b", "q/c"]]


def test_fewest_pools_are_preferred_to_fewest_devices() -> None:
    pools = [
        pool("p", "n", [memory_device("a", "8")]),
        pool("q", "n", [memory_device("b", "4"), memory_device("c", "4"), memory_device("d", "4")]),
    ]
    assert devices_of(solve(CLASS, *pools, claim("x", memory_request("12")))) == [
        ["q/b/memory=4", "q/c/memory=4", "q/d/memory=4"]
    ]


def test_first_of_equally_scored_nodes_is_chosen() -> None:
    pools = [pool("q", "m", [device("b")]), pool("p", "n", [device("a")])]
    assert solve(CLASS, *pools, claim("x", C)).node == "m"


def test_node_with_better_alternative_is_chosen() -> None:
    pools = [pool("q", "m", [device("z")]), PAIR]
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    outcome = solve(CLASS, *pools, claim("x", choice))
    assert [(each.node, each.score) for each in outcome.results] == [("m", 50), ("n", 100)]
    assert outcome.node == "n"


def test_node_score_is_average_of_claim_scores() -> None:
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    outcome = solve(CLASS, PAIR, claim("x", choice), claim("y", C))
    assert [each.score for each in outcome.results] == [75]
