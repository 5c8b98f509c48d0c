"""k8s-rdma-shared-dev-plugin: pools of RDMA devices that many containers share, all devices of a pool at once.

Source: Mellanox/k8s-rdma-shared-dev-plugin, README (configuration).
"""

from collections.abc import Iterator

from msgspec import Struct, field

from hostdevices import Host
from nodeplug.convert.conversion import LeftOut, Offered, Values, invalid_id_reason, literal, one_or_all


class Selector(Struct, frozen=True, rename="camel"):
    """All conditions on a device; of a list, one entry must match."""

    vendors: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = field(default=(), name="deviceIDs")
    drivers: tuple[str, ...] = ()
    if_names: tuple[str, ...] = ()
    link_types: tuple[str, ...] = ()


class Pool(Struct, frozen=True, rename="camel"):
    """A resource; `devices` are interfaces, in older files."""

    resource_name: str
    rdma_hca_max: int
    selectors: Selector = Selector()
    resource_prefix: str = ""
    devices: tuple[str, ...] = ()


class File(Struct, frozen=True, rename="camel"):
    """The file."""

    config_list: tuple[Pool, ...]
    periodic_update_interval: int = 60  # without effect: our daemon receives events of changes


def resources(file: File, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each pool: one device of all its members, with as many shares as before."""
    for pool in file.config_list:
        if pool.rdma_hca_max < 1:
            yield LeftOut(f"{pool.resource_prefix or domain}/{pool.resource_name}", "no pod could have it (rdmaHcaMax)")
            continue
        if foreign := invalid_id_reason(pool.selectors.vendors, pool.selectors.device_ids):
            yield LeftOut(f"{pool.resource_prefix or domain}/{pool.resource_name}", foreign)
            continue
        attributes: Values = {}
        for name, wanted in (
            ("vendor", pool.selectors.vendors),
            ("device", pool.selectors.device_ids),
            ("driver", tuple(map(literal, pool.selectors.drivers))),
            ("netdev", tuple(map(literal, pool.selectors.if_names or pool.devices))),
            ("linkLayer", tuple(_LAYERS.get(x, x) for x in pool.selectors.link_types)),
        ):
            if wanted:
                attributes[name] = one_or_all(wanted)
        values: Values = {
            "name": f"{pool.resource_prefix or domain}/{pool.resource_name}",
            "select": {"kind": "rdma", "attributes": attributes},
            "group": {"attribute": "bus"},  # an attribute that all of them have in common
            "shares": pool.rdma_hca_max,
        }
        yield Offered(values)


_LAYERS = {"ether": "Ethernet", "infiniband": "InfiniBand"}
