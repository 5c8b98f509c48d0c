"""The structured allocator applied to the published pool, with the generated classes."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from controlplane.structured import AllocatedState, Allocator, DeviceClasses, Features
from dra_plugin.publishing.device_class import class_name, device_class
from dra_plugin.publishing.offers import Offered, Offers
from hostdevices import Device, scan
from resourceapi.objects import from_dict, v1
from resourceapi.objects.core import Node
from resources.assignment import assign
from resources.resource import DraOptions, Partition, Resource
from resources.selector import AllOf, Attribute, Kinds
from tests.dra_plugin.offering import DRIVER, HALVES, NODE, UNHEALTHY, as_slice, device, gpus, offering, pool, resource
from tests.dra_scenarios import scenario
from tests.hostdevices.machine import interface
from tests.hostdevices.tree import Tree

GPU = "example.com/gpu"


class Scheduler:
    """Allocates devices to claims, one after the other."""

    def __init__(self, resources: Sequence[Resource], offers: Offers) -> None:
        slices = pool(offers).slices
        self._slices = tuple(as_slice(one, i, len(slices)) for i, one in enumerate(slices))
        self._classes = DeviceClasses([device_class(x, DRIVER) for x in resources])
        self._claims: list[v1.ResourceClaim] = []

    def hold(self, device: str) -> None:
        """Add a claim that already has a device."""
        result = v1.DeviceRequestAllocationResult(request="r", driver=DRIVER, pool=NODE, device=device)
        allocation = v1.AllocationResult(devices=v1.DeviceAllocationResult(results=(result,)))
        self._claims.append(v1.ResourceClaim(status=v1.ResourceClaimStatus(allocation=allocation)))

    def allocate_one(self, name: str) -> str | None:
        """Allocate one device of the class `name` to a new claim and return it; None if none is left."""
        number = f"claim-{len(self._claims)}"
        request = {
            "name": "r",
            "exactly": {"deviceClassName": class_name(name), "allocationMode": "ExactCount", "count": 1},
        }
        claim = from_dict(
            v1.ResourceClaim,
            {
                "metadata": {"name": number, "namespace": "ns", "uid": number},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        state = AllocatedState.from_claims(self._claims)
        allocator = Allocator(Features(), state, self._classes, self._slices)
        found = allocator.allocate(from_dict(Node, {"metadata": {"name": NODE}}), [claim])
        if found is None:
            return None
        self._claims.append(structs.replace(claim, status=v1.ResourceClaimStatus(allocation=found[0])))
        (result,) = found[0].devices.results
        return result.device

    def allocate_all(self, name: str) -> list[str]:
        """Allocate devices of the class `name` to new claims until none is left."""
        found: list[str] = []
        while (allocated := self.allocate_one(name)) is not None:
            found.append(allocated)
        return found


def test_class_allocates_only_devices_of_its_resource() -> None:
    resources = [resource("x/a"), resource("x/b")]
    offers = offering(resources, {"x/a": gpus(2), "x/b": [device("b")]})
    assert Scheduler(resources, offers).allocate_all("x/a") == ["gpu-0000", "gpu-0001"]


@scenario(236)
def test_unhealthy_device_is_not_allocated() -> None:
    devices: list[Device] = [*gpus(1, UNHEALTHY), device("gpu-1")]
    assert Scheduler([resource()], offering([resource()], {GPU: devices})).allocate_all(GPU) == ["gpu-1"]


@scenario(232)
def test_shared_device_is_allocated_once_per_share() -> None:
    shared = resource(shares=3)
    assert Scheduler([shared], offering([shared], {GPU: gpus(1)})).allocate_all(GPU) == ["gpu-0000"] * 3


@scenario(231)
def test_partitions_are_allocated_until_the_counters_are_exhausted() -> None:
    parts = resource(dra=HALVES)
    scheduler = Scheduler([parts], offering([parts], {GPU: [device("a"), device("b")]}))
    assert scheduler.allocate_all(GPU) == ["a-full", "b-full"]
    halves = structs.replace(HALVES, partitions=HALVES.partitions[:1])
    parts = resource(dra=halves)
    assert Scheduler([parts], offering([parts], {GPU: [device("a")]})).allocate_all(GPU) == ["a-half-0", "a-half-1"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("counters", "part", "left"),
    [({"memory": "80Gi", "slices": "7"}, {"memory": "20Gi"}, 2), ({"bandwidth": "4"}, {"bandwidth": "1"}, 0)],
    ids=["the same counters", "others"],
)
def test_held_partition_of_an_earlier_layout_keeps_its_counters(
    restarted: bool, counters: dict[str, str], part: dict[str, str], left: int
) -> None:
    """If the current counters cannot express it, the part takes the whole device. The pool must stay valid."""
    before = resource(dra=HALVES)
    now = resource(dra=DraOptions(counters=counters, partitions=(Partition("part", part, count=4),)))
    held = {"a-half-0"}
    offers = Offers(
        [now],
        from_leases=lambda names, _: {x: Offered(x, now, device("a"), "half") for x in names},
        is_present=lambda _: True,
    )
    if not restarted:
        offers.configure([before])
        offers.update({GPU: [device("a")]}, leased=held)
        offers.configure([now])
    offers.update({GPU: [device("a"), device("b")]}, leased=held)
    kept = offers.find("a-half-0")
    assert kept is not None
    scheduler = Scheduler([now], offers)
    scheduler.hold(kept.name)
    allocated = [x for x in scheduler.allocate_all(GPU) if x.startswith("a")]
    assert allocated == [f"a-part-{i}" for i in range(0 if restarted else left)]


def test_pf_and_its_vfs_are_never_both_allocated(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    for bus in ("3b", "5e"):
        physical = tree.pci(f"0000:{bus}:00.0", pci_class="020000", sriov_totalvfs=8)
        interface(tree, physical, f"pf{bus}", mac=f"02:00:00:00:{bus}:00")
        for i in range(3):
            virtual = tree.virtual_function(physical, f"0000:{bus}:01.{i}", i, pci_class="020000")
            interface(tree, virtual, f"vf{bus}{i}", mac=f"02:00:00:00:{bus}:0{i + 1}")
    resources = [
        Resource(name, AllOf((Kinds(("nic",)), Attribute("sriov", (role,)))), api="dra")
        for name, role in (("x/pf", "pf"), ("x/vf", "vf"))
    ]
    inventory = scan(tree.host)
    offers = offering(resources, assign(inventory, resources).devices)
    assert len(offers) == 8

    virtual_first = Scheduler(resources, offers)
    taken = virtual_first.allocate_one("x/vf")
    assert taken is not None
    (physical_left,) = virtual_first.allocate_all("x/pf")
    assert (
        inventory.devices[physical_left].attributes["resource.kubernetes.io/pciBusID"]
        != inventory.devices[taken].attributes["pf"]
    )
    assert len(virtual_first.allocate_all("x/vf")) == 2

    assert len(Scheduler(resources, offers).allocate_all("x/vf")) == 6
    physical_first = Scheduler(resources, offers)
    assert len(physical_first.allocate_all("x/pf")) == 2
    assert physical_first.allocate_one("x/vf") is None
