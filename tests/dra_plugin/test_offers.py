"""What is offered under which name, what its lease takes, and what stays while a claim holds it."""

import logging

import pytest

from checkpoint import Lease, Obstacles
from dra_plugin.offers import Offers
from hostdevices import Health, is_device_id
from hostdevices.resource import DraOptions, Partition
from tests.dra_plugin.offering import HALVES, device, gpus, offering, resource

GPU = "example.com/gpu"


def lease(unit: str, *occupies: str, touches: tuple[str, ...] = ()) -> Lease:
    return Lease(
        resource=GPU,
        unit=unit,
        api="device-plugin",
        occupies=frozenset(occupies),
        touches=frozenset(touches),
        holder="pod/default/a/main",
        boot_id="b",
        since=0,
    )


def test_resources_of_the_device_plugin_api_alone_are_not_offered() -> None:
    resources = [resource("x/a", api="device-plugin"), resource("x/b", api="dra"), resource("x/c", api="both")]
    offers = offering(resources, {"x/a": [device("a")], "x/b": [device("b")], "x/c": [device("c")]})
    assert [x.name for x in offers] == ["b", "c"]
    assert offers.find("a") is None


def test_an_offered_device_takes_itself_and_its_members_and_touches_its_wholes() -> None:
    offers = offering([resource()], {GPU: [device("gpu-1", within=("pci-1",), members=("render-1",))]})
    found = offers.find("gpu-1")
    assert found is not None
    assert found.occupies == {"gpu-1", "render-1"}
    assert found.touches == {"pci-1"}


def test_a_share_touches_its_device() -> None:
    found = offering([resource(shares=4)], {GPU: [device("gpu-1", within=("pci-1",))]}).find("gpu-1")
    assert found is not None
    assert not found.occupies
    assert found.touches == {"gpu-1", "pci-1"}


def test_a_device_with_partitions_is_offered_in_parts_that_touch_it() -> None:
    offers = offering([resource(dra=HALVES)], {GPU: [device("gpu-1")]})
    assert [x.name for x in offers] == ["gpu-1-full", "gpu-1-half-0", "gpu-1-half-1"]
    half = offers.find("gpu-1-half-0")
    assert half is not None
    assert half.layout == HALVES.partitions[0]
    assert half.partition == "half"
    assert half.occupies == {"gpu-1-half-0"}
    assert half.touches == {"gpu-1"}


def test_the_name_of_a_part_is_a_label_however_long_the_devices_is() -> None:
    long = device("gpu-" + "a" * 59)
    names = [x.name for x in offering([resource(dra=HALVES)], {GPU: [long]})]
    assert len(set(names)) == 3
    assert all(map(is_device_id, names))


def test_a_name_that_two_have_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
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


def test_update_tells_whether_anything_changed() -> None:
    offers = Offers([resource()])
    assert offers.update({GPU: gpus(2)})
    assert not offers.update({GPU: gpus(2)})
    assert offers.update({GPU: [*gpus(1), device("gpu-0001", health=Health(False, "hot"))]})
    assert offers.update({GPU: gpus(2)}, obstacles=Obstacles({"gpu-0000": lease("gpu-0000", "gpu-0000")}))
    assert offers.update({GPU: gpus(2)})
    assert offers.update({GPU: gpus(2)}, withheld={"gpu-0001": "its reset failed"})
    assert offers.update({})
    assert len(offers) == 0


def test_what_a_claim_holds_stays_as_unhealthy_until_its_lease_ends() -> None:
    offers = offering([resource()], {GPU: gpus(2)})
    assert offers.update({GPU: []}, leased={"gpu-0001"})
    (kept,) = offers
    assert kept.name == "gpu-0001"
    assert kept.device.health == Health(False, "it is gone, or not offered any more")
    assert offers.is_barred("gpu-0001")
    assert not offers.update({GPU: []}, leased={"gpu-0001"})
    assert offers.update({GPU: gpus(2)}, leased={"gpu-0001"})
    assert not offers.is_barred("gpu-0001")
    assert offers.update({GPU: []})
    assert len(offers) == 0


def test_who_iterates_sees_one_moment() -> None:
    offers = offering([resource()], {GPU: gpus(2)})
    seen = iter(offers)
    offers.update({GPU: []})
    assert [x.name for x in seen] == ["gpu-0000", "gpu-0001"]


def test_a_lease_may_end_right_after_its_device() -> None:
    offers = offering([resource()], {GPU: gpus(2)})
    assert offers.update({GPU: []}, leased={"gpu-0001"})
    assert offers.update({GPU: []})
    assert len(offers) == 0


def test_a_leased_name_that_nobody_knows_is_not_offered() -> None:
    offers = Offers([resource()])
    assert not offers.update({}, leased={"gpu-7"})


def test_a_withheld_device_is_unhealthy_with_the_reason() -> None:
    offers = Offers([resource()])
    offers.update({GPU: gpus(1)}, withheld={"gpu-0000": "its reset failed"})
    (found,) = offers
    assert found.device.health == Health(False, "its reset failed")
    assert offers.is_barred("gpu-0000")


def test_what_the_other_api_has_given_out_is_in_use() -> None:
    offers = Offers([resource(api="both")])
    assigned = {GPU: [device("gpu-1"), device("gpu-2", within=("pci-2",)), device("gpu-3")]}
    held = lease("gpu-1", "gpu-1")
    offers.update(assigned, obstacles=Obstacles({"gpu-1": held, "pci-2": lease("pci-2", "pci-2")}))
    assert offers.why_in_use("gpu-1") == "example.com/gpu (device-plugin) has given gpu-1 to pod/default/a/main"
    assert offers.why_in_use("gpu-2")
    assert not offers.why_in_use("gpu-3")
    assert offers.update(assigned, obstacles=Obstacles({"gpu-3": lease("gpu-3", "gpu-3")}))
    assert [x.name for x in offers if offers.why_in_use(x.name)] == ["gpu-3"]
    assert not offers.update(assigned, obstacles=Obstacles({"gpu-3": lease("gpu-3", "gpu-3"), "nic-1": held}))


def test_what_works_with_the_same_hardware_touches_each_other() -> None:
    physical = device("nic-pf", kind="nic", within=("pci-1",), beside=("nic-vf-0", "nic-vf-1"))
    virtual = [device(f"nic-vf-{i}", kind="nic", beside=("nic-pf",)) for i in range(2)]
    offers = offering([resource("x/pf"), resource("x/vf")], {"x/pf": [physical], "x/vf": virtual})
    assert {x.name: x.touches for x in offers} == {
        "nic-pf": {"pci-1", "nic-vf-0", "nic-vf-1"},
        "nic-vf-0": {"nic-pf"},
        "nic-vf-1": {"nic-pf"},
    }
