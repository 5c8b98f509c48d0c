"""Names of offered devices, what their leases take, and which offers stay while a claim holds them."""

import logging

import pytest

from checkpoint import Lease
from checkpoint.lease import Book
from dra_plugin.publishing.offers import Offered, Offers
from hostdevices import Health, Inventory, is_device_id
from resources.assignment import assign
from resources.resource import DraOptions, Partition, Resource
from resources.selector import Ids
from tests.checkpoint.build import lease
from tests.dra_plugin.offering import HALVES, device, gpus, offering, resource

GPU = "example.com/gpu"
PF, VF = "pci-0000-3b-00-0", "pci-0000-3b-00-1"


def test_device_of_the_device_plugin_api_alone_is_not_offered() -> None:
    resources = [resource("x/a", api="device-plugin"), resource("x/b", api="dra"), resource("x/c", api="both")]
    offers = offering(resources, {"x/a": [device("a")], "x/b": [device("b")], "x/c": [device("c")]})
    assert [x.name for x in offers] == ["b", "c"]
    assert offers.find("a") is None


def test_offer_excludes_its_children_and_shares_its_parents() -> None:
    offers = offering([resource()], {GPU: [device("gpu-1", parents=("pci-1",), children=("render-1",))]})
    found = offers.find("gpu-1")
    assert found is not None
    assert found.exclusive == {"gpu-1", "render-1"}
    assert found.shared == {"pci-1"}


def test_shared_device_excludes_nothing() -> None:
    found = offering([resource(shares=4)], {GPU: [device("gpu-1", parents=("pci-1",))]}).find("gpu-1")
    assert found is not None
    assert not found.exclusive
    assert found.shared == {"gpu-1", "pci-1"}


def test_device_with_partitions_is_offered_as_its_partitions() -> None:
    offers = offering([resource(dra=HALVES)], {GPU: [device("gpu-1")]})
    assert [x.name for x in offers] == ["gpu-1-full", "gpu-1-half-0", "gpu-1-half-1"]
    half = offers.find("gpu-1-half-0")
    assert half is not None
    assert half.layout == HALVES.partitions[0]
    assert half.partition == "half"
    assert half.exclusive == {"gpu-1-half-0"}
    assert half.shared == {"gpu-1"}


def test_partition_of_a_device_with_a_long_name_has_a_valid_name() -> None:
    long = device("gpu-" + "a" * 59)
    names = [x.name for x in offering([resource(dra=HALVES)], {GPU: [long]})]
    assert len(set(names)) == 3
    assert all(map(is_device_id, names))


def test_duplicate_name_is_omitted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    parts = resource(
        "x/parts",
        dra=DraOptions(counters={"c": "1"}, partitions=(Partition("1", {"c": "1"}), Partition("2", {"c": "1"}))),
    )
    assigned = {GPU: [device("gpu-1")], "x/parts": [device("gpu")]}
    offers = Offers([resource(), parts])
    with caplog.at_level(logging.ERROR):
        offers.update(assigned)
        offers.update({**assigned, GPU: [device("gpu-1"), device("gpu-9")]})
    assert [x.name for x in offers] == ["gpu-1", "gpu-2", "gpu-9"]
    assert [x.getMessage() for x in caplog.records] == [
        "not offered through DRA: gpu-1 is the name of a part of gpu and of gpu-1;"
        " give a partition of x/parts another name"
    ]


def test_update_returns_whether_anything_changed() -> None:
    offers = Offers([resource()])
    assert offers.update({GPU: gpus(2)})
    assert not offers.update({GPU: gpus(2)})
    assert offers.update({GPU: [*gpus(1), device("gpu-0001", health=Health(False, "hot"))]})
    assert offers.update({GPU: gpus(2)})
    assert offers.update({})
    assert len(offers) == 0


def test_held_device_is_unavailable_after_its_offer_ends() -> None:
    there = {"gpu-0001", "gpu-0002", "gpu-0003"}
    offers = Offers([resource()], is_present=there.__contains__)
    pair = device("pair", children=("gpu-0002", "gpu-0003"))
    held = {"gpu-0001", "pair"}
    assert offers.update({GPU: [*gpus(2), pair]}, leased=held)
    assert offers.update({GPU: gpus(1)}, leased=held)
    (_, *kept) = offers
    assert [(x.name, x.device.health.healthy, x.device.unavailable) for x in kept] == [
        ("gpu-0001", True, "it is not offered any more"),
        ("pair", True, "it is not offered any more"),
    ]
    offers.update({GPU: gpus(1)}, leased=held)
    assert not offers.update({GPU: gpus(1)}, leased=held)
    there -= {"gpu-0001", "gpu-0003"}
    assert offers.update({GPU: gpus(1)}, leased=held)
    (_, *kept) = offers
    assert [(x.device.health.reason, x.device.unavailable) for x in kept] == [("it is gone", "")] * 2


def test_held_device_beyond_the_counter_limits_stays_without_counters() -> None:
    """A group of a hundred devices, now offered individually: the scheduler looks for the device of the allocation."""
    members = gpus(100)
    whole = device("all", children=tuple(x.id for x in members))
    offers = Offers([resource()], is_present=frozenset(x.id for x in members).__contains__)
    assert offers.update({GPU: [whole]}, leased={"all"})
    assert offers.update({GPU: members}, leased={"all"})
    kept = offers.find("all")
    assert kept is not None
    assert kept.device.unavailable == "it is not offered any more"
    assert not offers.counters_of("all")
    assert not offers.is_counted("all")
    assert len(offers) == 101
    assert offers.update({GPU: members})
    assert offers.find("all") is None
    assert offers.update({GPU: [whole, *members]}, leased={"all"})
    assert offers.find("all") is not None
    assert offers.update({GPU: [whole, *members]})
    assert offers.find("all") is None


def test_held_device_stays_as_unhealthy_until_its_lease_ends() -> None:
    offers = offering([resource()], {GPU: gpus(2)})
    assert offers.update({GPU: []}, leased={"gpu-0001"})
    (kept,) = offers
    assert kept.name == "gpu-0001"
    assert kept.device.health == Health(False, "it is gone")
    assert offers.is_gone("gpu-0001")
    assert not offers.update({GPU: []}, leased={"gpu-0001"})
    assert offers.update({GPU: gpus(2)}, leased={"gpu-0001"})
    assert not offers.is_gone("gpu-0001")
    assert offers.update({GPU: []})
    assert len(offers) == 0


def test_iteration_is_not_affected_by_an_update() -> None:
    offers = offering([resource()], {GPU: gpus(2)})
    seen = iter(offers)
    offers.update({GPU: []})
    assert [x.name for x in seen] == ["gpu-0000", "gpu-0001"]


def test_removed_device_disappears_when_its_lease_ends() -> None:
    offers = offering([resource()], {GPU: gpus(2)})
    assert offers.update({GPU: []}, leased={"gpu-0001"})
    assert offers.update({GPU: []})
    assert len(offers) == 0


def test_unknown_leased_name_is_not_offered() -> None:
    offers = Offers([resource()])
    assert not offers.update({}, leased={"gpu-7"})


def test_device_is_in_use_while_another_lease_holds_it() -> None:
    holders: dict[str, Lease] = {}
    asked: list[str] = []

    def holder(offered: Offered) -> Lease | None:
        asked.append(offered.name)
        return next((holders[i] for i in sorted(offered.exclusive | offered.shared) if i in holders), None)

    offers = Offers([resource(api="both")], holder)
    assigned = {GPU: [device("gpu-1"), device("gpu-2", parents=("pci-2",)), device("gpu-3")]}
    holders |= {"gpu-1": lease("gpu-1"), "pci-2": lease("pci-2")}
    assert offers.update(assigned)
    assert {x.name: offers.in_use(x.name) for x in offers} == {
        "gpu-1": lease("gpu-1"),
        "gpu-2": lease("pci-2"),
        "gpu-3": None,
    }
    del holders["pci-2"]
    asked.clear()
    assert offers.update(assigned, changed_ids={"pci-2", "nic-1"})
    assert (offers.in_use("gpu-2"), asked) == (None, ["gpu-2"])  # no other device can be affected
    assert not offers.update(assigned, changed_ids={"pci-2"})
    holders.clear()
    assert offers.update(assigned)
    assert offers.in_use("gpu-1") is None


@pytest.mark.parametrize(("held", "wanted"), [(PF, VF), (VF, PF)])
def test_pf_and_vf_conflict_across_apis_when_only_one_is_offered(held: str, wanted: str) -> None:
    inventory = Inventory.of([device(PF, kind="pci"), device(VF, kind="pci", attributes={"pf": "0000:3b:00.0"})])

    def offered(name: str) -> Offered:
        x = Resource("x/function", Ids((name,)), api="dra")
        (found,) = offering([x], assign(inventory, [x]).devices)
        return found

    unit = Lease(
        resource="x/unit", unit="u", api="device-plugin", owner="unit", exclusive=frozenset({held}), boot_id=""
    )
    claimed = Lease(
        resource="x/function",
        unit=held,
        api="dra",
        owner="claim",
        exclusive=offered(held).exclusive,
        shared=offered(held).shared,
        boot_id="",
    )
    assert list(Book([unit]).conflicts("other", offered(wanted).exclusive, offered(wanted).shared)) == [(held, unit)]
    assert [lease for _, lease in Book([claimed]).conflicts("other", {wanted})] == [claimed]


def test_sriov_peers_are_shared() -> None:
    physical = device("nic-pf", kind="nic", parents=("pci-1",), sriov_peers=("nic-vf-0", "nic-vf-1"))
    virtual = [device(f"nic-vf-{i}", kind="nic", sriov_peers=("nic-pf",)) for i in range(2)]
    offers = offering([resource("x/pf"), resource("x/vf")], {"x/pf": [physical], "x/vf": virtual})
    assert {x.name: x.shared for x in offers} == {
        "nic-pf": {"pci-1", "nic-vf-0", "nic-vf-1"},
        "nic-vf-0": {"nic-pf"},
        "nic-vf-1": {"nic-pf"},
    }
