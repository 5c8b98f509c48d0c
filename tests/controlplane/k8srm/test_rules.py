"""The rules in the comments of the prototype's types, one by one (allocator.md 6.3)."""

from typing import Any

import pytest

from controlplane.k8srm.types import API_VERSION
from tests.controlplane.k8srm.build import (
    Plain,
    claim,
    device,
    device_class,
    got,
    held,
    pool,
    resource,
    solve,
    why,
)

C = {"deviceClass": "c"}
CLASS = device_class("c", "d")
PAIR = pool("p", "n", [device("a"), device("b")])


def big(name: str, amount: str = "80Gi", block: str | None = None) -> Plain:
    """A device with memory."""
    return device(name, resources=[resource("memory", amount, block)])


def memory(amount: str, **more: Any) -> Plain:
    return {**C, "requests": {"memory": amount}, **more}


# 1. classes, types, drivers, nodes


def test_a_class_has_the_devices_of_its_driver() -> None:
    other = pool("other", "n", [device("x")], driver="e")
    assert got(solve(CLASS, other, PAIR, claim("x", C))) == [["p/a"]]


def test_a_type_is_the_union_of_its_classes() -> None:
    classes = [device_class("c", "d"), device_class("e", "e", constraints="device.fast == 1")]
    pools = [PAIR, pool("q", "n", [device("slow", {"fast": 0}), device("fast", {"fast": 1})], driver="e")]
    outcome = solve(*classes, *pools, claim("x", {"deviceType": "gpu", "requests": {"count": 3}}))
    assert got(outcome) == [["p/a", "p/b", "q/fast"]]


def test_a_class_without_driver_stands_for_all_drivers_of_its_type() -> None:
    vlan = device_class("vlan", deviceType="vlan")
    drivers: list[Plain] = [
        {"apiVersion": API_VERSION, "kind": "DeviceDriver", "metadata": {"name": name}, "deviceTypes": types}
        for name, types in (("d", ["gpu"]), ("e", ["gpu", "vlan"]))
    ]
    pools = [PAIR, pool("q", "n", [device("v")], driver="e")]
    assert got(solve(vlan, *drivers, *pools, claim("x", {"deviceClass": "vlan"}))) == [["q/v"]]


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
def test_faults_of_a_claim(wanted: Plain, reason: str) -> None:
    assert why(solve(CLASS, PAIR, claim("x", wanted))) == [reason]


def test_pools_without_a_node_serve_every_node() -> None:
    network = pool("network", None, [device("a"), device("b")])
    elsewhere = pool("elsewhere", "m", [device("c")])
    outcome = solve(CLASS, elsewhere, network, claim("x", {**C, "requests": {"count": 3}}))
    assert (outcome.node, len(got(outcome)[0])) == ("m", 3)


def test_a_network_device_is_taken_on_all_nodes() -> None:
    network = pool("network", None, [device("a")])
    empty = pool("m", "m", [])
    outcome = solve(CLASS, network, empty, held("h", ("network", "a", {})), claim("x", C))
    assert why(outcome) == ["2 pools: no available devices"]


# 2. attributes and constraints


def test_a_device_overrides_the_pool() -> None:
    shared = [{"name": "model", "stringValue": "old"}]
    mixed = pool("p", "n", [device("a"), device("b", {"model": "new"})], attributes=shared)
    wanted = {**C, "constraints": "device.model == 'new'"}
    assert got(solve(CLASS, mixed, claim("x", wanted))) == [["p/b"]]


def test_class_and_claim_must_both_hold() -> None:
    red = device_class("c", "d", constraints="device.colour == 'red'")
    devices = [
        device("a", {"colour": "red", "size": 1}),
        device("b", {"colour": "blue", "size": 2}),
        device("c", {"colour": "red", "size": 2}),
    ]
    wanted = {**C, "constraints": "device.size == 2"}
    assert got(solve(red, pool("p", "n", devices), claim("x", wanted))) == [["p/c"]]


def test_an_error_keeps_a_device_out_but_ends_nothing() -> None:
    devices = [device("a"), device("b", {"size": 2})]
    wanted = {**C, "constraints": "device.size == 2"}
    assert got(solve(CLASS, pool("p", "n", devices), claim("x", wanted))) == [["p/b"]]
    assert why(solve(CLASS, PAIR, claim("x", wanted))) == ["1 pool: error evaluating constraints: no such key: size"]


# 3. counts


def test_one_device_is_the_default() -> None:
    assert got(solve(CLASS, PAIR, claim("x", C))) == [["p/a"]]


def test_the_requested_count_is_exact_even_below_the_limit() -> None:
    assert got(solve(CLASS, PAIR, claim("x", {**C, "limits": {"count": 2}}))) == [["p/a"]]


def test_count_zero_is_served_by_nothing() -> None:
    assert got(solve(CLASS, PAIR, claim("x", {**C, "requests": {"count": 0}}))) == [[]]


# 4. amounts


def test_amounts_are_rounded_up_to_blocks() -> None:
    assert got(solve(CLASS, pool("p", "n", [big("a", "100", "8")]), claim("x", memory("13")))) == [["p/a/memory=16"]]


def test_blocks_are_units_by_default() -> None:
    assert got(solve(CLASS, pool("p", "n", [big("a", "100")]), claim("x", memory("1500m")))) == [["p/a/memory=2"]]


def test_a_last_part_of_a_block_is_no_use() -> None:
    outcome = solve(CLASS, pool("p", "n", [big("a", "15", "8")]), claim("x", memory("9")))
    assert why(outcome) == ["unable to satisfy 1 of 1 device requests"]


def test_portions_of_one_device_go_to_several_claims() -> None:
    one = pool("p", "n", [big("a", "10")])
    outcome = solve(CLASS, one, claim("x", memory("6")), claim("y", memory("4")))
    assert got(outcome) == [["p/a/memory=6"], ["p/a/memory=4"]]
    assert why(solve(CLASS, one, claim("x", memory("6")), claim("y", memory("5")))) == [
        "the devices are needed by other claims"
    ]


def test_amounts_are_sums_over_as_few_devices_as_possible() -> None:
    three = pool("p", "n", [big("a", "10"), big("b", "10"), big("c", "10")])
    assert got(solve(CLASS, three, claim("x", memory("18")))) == [["p/a/memory=9", "p/b/memory=9"]]


def test_amounts_are_sums_over_the_requested_number_of_devices() -> None:
    three = pool("p", "n", [big("a", "10"), big("b", "10"), big("c", "10")])
    wanted = {**C, "requests": {"memory": "6", "count": 3}}
    assert got(solve(CLASS, three, claim("x", wanted))) == [["p/a/memory=2", "p/b/memory=2", "p/c/memory=2"]]
    wanted = {**C, "requests": {"memory": "30", "count": 2}}
    assert why(solve(CLASS, three, claim("x", wanted))) == ["unable to satisfy 2 of 2 device requests"]


def test_devices_of_different_size_give_different_portions() -> None:
    devices = [big("small", "3"), big("large", "10")]
    assert got(solve(CLASS, pool("p", "n", devices), claim("x", memory("12")))) == [
        ["p/large/memory=9", "p/small/memory=3"]
    ]


def test_devices_are_drained_where_an_even_split_is_in_the_way() -> None:
    pair = pool("p", "n", [big("a", "80"), big("b", "80")])
    outcome = solve(CLASS, pair, claim("x", memory("100")), claim("y", {**memory("60"), "limits": {"count": 1}}))
    assert got(outcome) == [["p/a/memory=80", "p/b/memory=20"], ["p/b/memory=60"]]


def test_limits_cap_the_sum() -> None:
    blocks = pool("p", "n", [big("a", "100", "8")])
    assert why(solve(CLASS, blocks, claim("x", memory("13", limits={"memory": "15"})))) == [
        "unable to satisfy 1 of 1 device requests"
    ]
    assert got(solve(CLASS, blocks, claim("x", memory("13", limits={"memory": "16"})))) == [["p/a/memory=16"]]


def test_limits_cap_the_number_of_devices() -> None:
    pair = pool("p", "n", [big("a", "10"), big("b", "10")])
    assert why(solve(CLASS, pair, claim("x", memory("18", limits={"count": 1})))) == [
        "unable to satisfy 1 of 1 device requests"
    ]


def test_what_is_only_limited_is_requested_up_to_the_limit() -> None:
    assert got(solve(CLASS, pool("p", "n", [big("a", "10")]), claim("x", {**C, "limits": {"memory": "4"}}))) == [
        ["p/a/memory=4"]
    ]


def test_a_device_without_the_resource_is_no_candidate() -> None:
    mixed = pool("p", "n", [device("a"), big("b", "10")])
    assert got(solve(CLASS, mixed, claim("x", memory("1")))) == [["p/b/memory=1"]]
    assert why(solve(CLASS, PAIR, claim("x", memory("1")))) == ["1 pool: no memory available"]


def test_a_claim_for_a_whole_device_shares_it_with_nobody() -> None:
    one = pool("p", "n", [big("a", "10")])
    assert solve(CLASS, one, claim("x", C), claim("y", memory("1"))).node is None
    assert solve(CLASS, one, claim("y", memory("1")), claim("x", C)).node is None


# 5. resources of pools


def test_devices_take_of_their_pool_in_blocks() -> None:
    slices = [device(name, requests={"slices": "3"}) for name in "abc"]
    for capacity, number in (("8", 2), ("7", 1)):
        shared = pool("p", "n", slices, resources=[resource("slices", capacity, "4")])
        assert solve(CLASS, shared, claim("x", {**C, "requests": {"count": number}})).node == "n"
        assert solve(CLASS, shared, claim("x", {**C, "requests": {"count": number + 1}})).node is None


def test_allocated_devices_have_taken_of_their_pool() -> None:
    slices = [device(name, requests={"slices": "3"}) for name in "abc"]
    shared = pool("p", "n", slices, resources=[resource("slices", "8")])
    outcome = solve(CLASS, shared, held("h", ("p", "a", {})), claim("x", C), claim("y", C))
    assert outcome.results[0].unsatisfied == ("y",)


def test_a_device_that_takes_what_its_pool_does_not_have_is_unusable() -> None:
    faulty = pool("p", "n", [device("a", requests={"slices": "3"}), device("b")])
    assert got(solve(CLASS, faulty, claim("x", C))) == [["p/b"]]
    alone = pool("p", "n", [device("a", requests={"slices": "3"})])
    assert why(solve(CLASS, alone, claim("x", C))) == ["1 pool: device a takes slices, which the pool does not have"]


def test_a_pool_with_two_devices_of_one_name_is_unusable() -> None:
    twins = pool("p", "n", [device("a"), device("a")])
    assert why(solve(CLASS, twins, claim("x", C))) == ["1 pool: two devices of the pool are called a"]
    assert got(solve(CLASS, twins, pool("q", "n", [device("b")]), claim("x", C))) == [["q/b"]]


# 6. matchAttributes


def test_devices_of_a_detail_agree() -> None:
    numa = pool("p", "n", [device("a", {"numa": 0}), device("b", {"numa": 1}), device("c", {"numa": 1})])
    wanted = {**C, "requests": {"count": 2}, "matchAttributes": ["numa"]}
    assert got(solve(CLASS, numa, claim("x", wanted))) == [["p/b", "p/c"]]


def test_details_may_differ_unless_the_claim_says_otherwise() -> None:
    numa = pool("p", "n", [device("a", {"numa": 0}), device("b", {"numa": 1}), device("c", {"numa": 1})])
    assert got(solve(CLASS, numa, claim("x", C, C))) == [["p/a", "p/b"]]
    assert got(solve(CLASS, numa, claim("x", C, C, matchAttributes=["numa"]))) == [["p/b", "p/c"]]


def test_drivers_agree_across_pools() -> None:
    nics = pool("nics", "n", [device("nic0", {"numa": 0}), device("nic1", {"numa": 1})], driver="e")
    gpus = pool("gpus", "n", [device("gpu", {"numa": 1})])
    both = claim("x", {"deviceClass": "nic"}, C, matchAttributes=["numa"])
    outcome = solve(CLASS, device_class("nic", "e", deviceType="nic"), nics, gpus, both)
    assert got(outcome) == [["nics/nic1", "gpus/gpu"]]


def test_a_device_without_the_attribute_does_not_match() -> None:
    wanted = {**C, "requests": {"count": 2}, "matchAttributes": ["numa"]}
    assert solve(CLASS, PAIR, claim("x", wanted)).node is None


def test_values_of_different_types_do_not_match() -> None:
    wanted = {**C, "requests": {"count": 2}, "matchAttributes": ["v"]}

    def values(*pair: Plain) -> Plain:
        return pool("p", "n", [device(name, {"v": value}) for name, value in zip("ab", pair, strict=True)])

    assert solve(CLASS, values({"stringValue": "1"}, {"intValue": 1}), claim("x", wanted)).node is None
    assert solve(CLASS, values({"stringValue": "1.0.0"}, {"semVerValue": "1.0.0"}), claim("x", wanted)).node is None
    assert solve(CLASS, values({"quantityValue": "1Ki"}, {"quantityValue": "1024"}), claim("x", wanted)).node == "n"


# 7. oneOf


def test_the_first_alternative_that_can_be_had_is_taken() -> None:
    choice = {"oneOf": [{**C, "requests": {"count": 3}}, {**C, "requests": {"count": 2}}, C]}
    assert got(solve(CLASS, PAIR, claim("x", choice))) == [["p/a", "p/b"]]


def test_an_earlier_instance_gives_way_only_if_nothing_else_helps() -> None:
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    assert got(solve(CLASS, PAIR, claim("x", choice, C))) == [["p/a", "p/b"]]
    assert got(solve(CLASS, PAIR, claim("x", choice), claim("y", C))) == [["p/a"], ["p/b"]]


def test_a_better_alternative_counts_more_than_fewer_pools() -> None:
    split = [pool("p", "n", [device("a")]), pool("q", "n", [device("b")])]
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    assert got(solve(CLASS, *split, claim("x", choice))) == [["p/a", "q/b"]]


# 8. admin access

ADMIN = device_class("admin", "d", adminAccess=True)


def test_admin_access_sees_what_is_allocated_and_takes_nothing() -> None:
    wanted = {"deviceClass": "admin", "requests": {"count": 2}}
    everything = held("h", ("p", "a", {}), ("p", "b", {}))
    assert got(solve(CLASS, ADMIN, PAIR, everything, claim("x", wanted))) == [["p/a", "p/b"]]
    outcome = solve(CLASS, ADMIN, PAIR, claim("x", wanted), claim("y", {**C, "requests": {"count": 2}}))
    assert got(outcome) == [["p/a", "p/b"], ["p/a", "p/b"]]


def test_admin_access_ignores_exhausted_resources() -> None:
    full = pool("p", "n", [device("a", requests={"s": "1"}), big("b", "1")], resources=[resource("s", "0")])
    taken = held("h", ("p", "b", {"memory": "1"}))
    wanted = {"deviceClass": "admin", "requests": {"count": 2}}
    assert got(solve(CLASS, ADMIN, full, taken, claim("x", wanted))) == [["p/a", "p/b"]]


def test_allocations_with_admin_access_hold_nothing() -> None:
    monitored = held("h", ("p", "a", {}), ("p", "b", {}), admin=True)
    assert got(solve(CLASS, PAIR, monitored, claim("x", C))) == [["p/a"]]


def test_a_device_type_does_not_lead_to_admin_access() -> None:
    outcome = solve(ADMIN, PAIR, claim("x", {"deviceType": "gpu"}))
    assert why(outcome) == ['classes of type "gpu" give admin access and must be named: admin']


def test_a_privileged_claim_has_admin_access_by_any_class() -> None:
    outcome = solve(CLASS, PAIR, held("h", ("p", "a", {})), claim("x", C, kind="DevicePrivilegedClaim"))
    assert got(outcome) == [["p/a"]]


# 9. existing allocations, all or nothing


def test_what_is_allocated_is_gone() -> None:
    assert got(solve(CLASS, PAIR, held("h", ("p", "a", {})), claim("x", C))) == [["p/b"]]
    assert why(solve(CLASS, PAIR, held("h", ("p", "a", {}), ("p", "b", {})), claim("x", C))) == [
        "1 pool: no available devices"
    ]


def test_amounts_that_are_allocated_are_gone() -> None:
    one = pool("p", "n", [big("a", "10", "4")])
    partly = held("h", ("p", "a", {"memory": "4"}))
    assert got(solve(CLASS, one, partly, claim("x", memory("4")))) == [["p/a/memory=4"]]
    assert solve(CLASS, one, partly, claim("x", memory("5"))).node is None
    assert why(solve(CLASS, one, partly, claim("x", C))) == ["1 pool: no available devices"]


def test_all_claims_are_served_by_one_node_or_none() -> None:
    pools = [pool("p", "n", [device("a")]), pool("q", "m", [device("b")])]
    outcome = solve(CLASS, *pools, claim("x", C), claim("y", C))
    assert outcome.node is None
    assert [result.unsatisfied for result in outcome.results] == [("y",), ("y",)]
    assert why(outcome) == ["the devices are needed by other claims"] * 2


def test_an_earlier_claim_gives_way_to_a_later_one() -> None:
    """The first claim could use any device, but does not take the only one that the second can use."""
    devices = pool("p", "n", [device("red", {"colour": "red"}), device("blue", {"colour": "blue"})])
    wanted = {**C, "constraints": "device.colour == 'red'"}
    assert got(solve(CLASS, devices, claim("x", C), claim("y", wanted))) == [["p/blue"], ["p/red"]]


# preferences


def test_the_fewest_pools_win() -> None:
    pools = [pool("p", "n", [device("a")]), pool("q", "n", [device("b"), device("c")])]
    assert got(solve(CLASS, *pools, claim("x", {**C, "requests": {"count": 2}}))) == [["q/b", "q/c"]]


def test_the_fewest_pools_win_over_the_fewest_devices() -> None:
    pools = [
        pool("p", "n", [big("a", "8")]),
        pool("q", "n", [big("b", "4"), big("c", "4"), big("d", "4")]),
    ]
    assert got(solve(CLASS, *pools, claim("x", memory("12")))) == [["q/b/memory=4", "q/c/memory=4", "q/d/memory=4"]]


def test_the_first_best_node_wins() -> None:
    pools = [pool("q", "m", [device("b")]), pool("p", "n", [device("a")])]
    assert solve(CLASS, *pools, claim("x", C)).node == "m"


def test_a_node_with_a_better_alternative_wins() -> None:
    pools = [pool("q", "m", [device("z")]), PAIR]
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    outcome = solve(CLASS, *pools, claim("x", choice))
    assert [(each.node, each.score) for each in outcome.results] == [("m", 50), ("n", 100)]
    assert outcome.node == "n"


def test_a_node_scores_the_average_of_its_claims() -> None:
    choice = {"oneOf": [{**C, "requests": {"count": 2}}, C]}
    outcome = solve(CLASS, PAIR, claim("x", choice), claim("y", C))
    assert [each.score for each in outcome.results] == [75]
