"""Offers of made-up devices, and the API server's validation of their slices."""

from collections.abc import Mapping, Sequence

from dra_plugin.publishing.offers import Offers
from dra_plugin.publishing.pool import driver_resources
from dra_plugin.publishing.slices.desired import Pool, Slice, validate
from hostdevices import HEALTHY, AttributeValue, Device, Health
from resourceapi.objects import ObjectMeta, v1
from resourceapi.objects.validate import validate_create
from resources.resource import Api, DraOptions, Partition, Resource
from resources.selector import Kinds

DRIVER, NODE = "nodeplug.dev", "worker-1"
UNHEALTHY = Health(False, "it does not answer on the PCI bus (its configuration reads as all ones)")

HALVES = DraOptions(
    counters={"memory": "80Gi", "slices": "7"},
    partitions=(
        Partition("half", {"memory": "40Gi", "slices": "3"}, count=2, attributes={"profile": "3g.40gb"}),
        Partition("full", {"memory": "80Gi", "slices": "7"}),
    ),
)


def resource(
    name: str = "example.com/gpu", *, api: Api = "dra", shares: int = 1, dra: DraOptions | None = None
) -> Resource:
    return Resource(name, Kinds(("gpu",)), api=api, shares=shares, dra=dra or DraOptions())


def device(
    name: str,
    *,
    kind: str = "gpu",
    attributes: Mapping[str, AttributeValue] | None = None,
    parents: tuple[str, ...] = (),
    children: tuple[str, ...] = (),
    sriov_peers: tuple[str, ...] = (),
    health: Health = HEALTHY,
) -> Device:
    return Device(
        id=name,
        kind=kind,
        name=name,
        attributes=attributes or {},
        parents=parents,
        children=children,
        sriov_peers=sriov_peers,
        health=health,
    )


def gpus(count: int, health: Health = HEALTHY) -> list[Device]:
    return [device(f"gpu-{i:04}", health=health) for i in range(count)]


def pool(offers: Offers) -> Pool:
    """Return the published pool; checks that every API server accepts it."""
    resources = driver_resources(offers, NODE, DRIVER)
    validate(resources)
    assert list(resources.pools) == [NODE]
    for number, one in enumerate(resources.pools[NODE].slices):
        assert not validate_create(as_slice(one, number, len(resources.pools[NODE].slices)))
    return resources.pools[NODE]


def as_slice(one: Slice, number: int = 0, count: int = 1) -> v1.ResourceSlice:
    """Return the API object of a slice."""
    return v1.ResourceSlice(
        metadata=ObjectMeta(name=f"{number:05x}-{NODE}"),
        spec=v1.ResourceSliceSpec(
            driver=DRIVER,
            pool=v1.ResourcePool(name=NODE, generation=1, resource_slice_count=count),
            node_name=NODE,
            devices=one.devices,
            shared_counters=one.shared_counters,
        ),
    )


def published(offers: Offers) -> dict[str, v1.Device]:
    """Return the published devices by name."""
    return {x.name: x for one in pool(offers).slices for x in one.devices}


def offering(resources: Sequence[Resource], assigned: Mapping[str, Sequence[Device]]) -> Offers:
    offers = Offers(resources)
    offers.update(assigned)
    return offers
