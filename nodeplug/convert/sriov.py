"""sriov-network-device-plugin: pools of network functions, each with selectors of which one must match.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, README (config parameters) and docs.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from hostdevices import Host
from nodeplug.convert.conversion import LeftOut, Offered, Values, invalid_id_reason, literal, one_or_all

DOMAIN = "intel.com"
"""The default prefix of resource names in the plugin."""
_CLASSES = {"netDevice": "02*", "accelerator": "12*"}
_TYPES = {"ether": "ethernet"}
_LAYERS = {"ether": "Ethernet", "infiniband": "InfiniBand"}
_WITH_FUNCTIONS = re.compile(r"([^#]+)(?:#([0-9,-]+))?")


class Selector(Struct, frozen=True, rename="camel"):
    """All conditions on a device; of a list, one entry must match."""

    vendors: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    pci_addresses: tuple[str, ...] = ()
    acpi_indexes: tuple[str, ...] = ()
    pf_names: tuple[str, ...] = ()
    root_devices: tuple[str, ...] = ()
    link_types: tuple[str, ...] = ()
    ddp_profiles: tuple[str, ...] = ()
    p_keys: tuple[str, ...] = ()
    aux_types: tuple[str, ...] = ()
    is_rdma: bool = False
    need_vhost_net: bool = False
    vdpa_type: str = ""


class Pool(Struct, frozen=True, rename="camel"):
    """A resource."""

    resource_name: str
    selectors: Selector | tuple[Selector, ...] = Selector()
    resource_prefix: str = ""
    device_type: Literal["netDevice", "accelerator", "auxNetDevice"] = "netDevice"
    exclude_topology: bool = False
    additional_info: dict[str, dict[str, str]] = {}
    is_rdma: bool = False  # older files have it here


class File(Struct, frozen=True, rename="camel"):
    """The file."""

    resource_list: tuple[Pool, ...]


_DEVLINK: Values = {"devlink": True}  # the source of cards' DDP packages
_OLDER = "ddpProfiles: only Intel's ddptool can read those of cards of the 700 series, which nodeplug does not select."
_SUBFUNCTION = "auxNetDevice"
_NOT_OF_SUBFUNCTIONS = {
    "pci_addresses": "pciAddresses",
    "acpi_indexes": "acpiIndexes",
    "ddp_profiles": "ddpProfiles",
    "p_keys": "pKeys",
    "vdpa_type": "vdpaType",
}


_PREFIX = "intel.com is the plugin's default prefix; if yours has another (--resource-prefix), use `--domain`."
_UNCONFINED = "dangerous: without an IOMMU, pods with igb_uio functions can write all memory, as with the plugin."
_NO_INFO = "additionalInfo is left out: the plugin uses it only for network devices."


def resources(file: File, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each pool, with the ids and variables that Multus, CNI plugins and DPDK images read."""
    notes = [] if domain != DOMAIN else [_PREFIX]
    for pool in file.resource_list:
        name = f"{pool.resource_prefix or domain}/{pool.resource_name}"
        selectors = pool.selectors if isinstance(pool.selectors, tuple) else (pool.selectors,)
        is_auxiliary = pool.device_type == _SUBFUNCTION
        of_subfunctions = _NOT_OF_SUBFUNCTIONS if is_auxiliary else {"aux_types": "auxTypes"}
        if wrong := [x for each in selectors for x in each.acpi_indexes if not x.isdecimal()]:
            yield LeftOut(name, f"no function has the ACPI index {wrong[0]} (acpiIndexes)")
            continue
        if foreign := next((found for x in selectors if (found := invalid_id_reason(x.vendors, x.devices))), ""):
            yield LeftOut(name, foreign)
            continue
        unknown = [word for x in selectors for field, word in of_subfunctions.items() if getattr(x, field)]
        unknown += [f"auxTypes {kind}" for x in selectors for kind in x.aux_types if is_auxiliary and kind != "sf"]
        if len({selector.need_vhost_net for selector in selectors}) > 1:
            unknown.append("needVhostNet for some of a pool")
        if unknown:
            yield LeftOut(name, f"nodeplug has no equivalent of {', '.join(dict.fromkeys(unknown))}")
            continue
        remarks = []
        if not pool.resource_prefix:
            remarks, notes = notes, []
        if pool.additional_info and pool.device_type != "netDevice":
            remarks.append(_NO_INFO)
        select = one_or_all([_select(pool, selector) for selector in selectors])
        values = {"name": name, "select": {"any": select} if isinstance(select, list) else select, "compat": "sriov"}
        if is_auxiliary:
            values["ids"] = "auxiliary"
        if not is_auxiliary:
            values["nodes"] = _nodes(pool, selectors)
        if pool.exclude_topology:
            values["topology"] = False
        if any("igb_uio" in x.drivers for x in selectors):
            values["dangerous"] = True
            remarks.append(_UNCONFINED)
        if selectors and selectors[0].need_vhost_net:
            values["vhostNet"] = True
        if pool.additional_info and pool.device_type == "netDevice":
            values["additionalInfo"] = pool.additional_info
        has_profiles = any(x.ddp_profiles for x in selectors)
        remarks += [_OLDER] if has_profiles else []
        yield Offered(values, tuple(remarks), settings=_DEVLINK if has_profiles else {})


def _nodes(pool: Pool, selectors: Sequence[Selector]) -> list[str]:
    """Return the nodes of a pool: of drivers in user space; of RDMA and vDPA if it asks for them; no clock."""
    rdma = ["/dev/infiniband/*"] if pool.is_rdma or any(x.is_rdma for x in selectors) else []
    vdpa = ["/dev/vhost-vdpa-*"] if any(x.vdpa_type == "vhost" for x in selectors) else []
    return ["/dev/vfio/*", "/dev/uio*", *rdma, *vdpa]


def _select(pool: Pool, selector: Selector) -> Values:
    is_rdma = selector.is_rdma or pool.is_rdma
    attributes: Values
    if is_auxiliary := pool.device_type == _SUBFUNCTION:
        attributes = {"auxiliary": "*.sf.*"}
        values: Values = {"kind": "rdma" if is_rdma else "nic", "attributes": attributes}
    else:
        attributes = {"class": _CLASSES[pool.device_type]}
        values = {"kind": "pci", "attributes": attributes}
    for name, wanted in (
        ("vendor", selector.vendors),
        ("device", selector.devices),
        ("driver", tuple(map(literal, selector.drivers))),
        ("pciBusID", tuple(map(literal, selector.pci_addresses))),
        ("acpiIndex", tuple(map(int, selector.acpi_indexes))),
        *_link_types(selector, is_layer=is_auxiliary and is_rdma),
        ("rdma", (True,) if is_rdma and not is_auxiliary else ()),
        ("pKey", tuple(x.lower().removeprefix("0x").zfill(4) for x in selector.p_keys)),
        ("ddpProfile", tuple(map(literal, selector.ddp_profiles))),
        ("vdpaType", (selector.vdpa_type,) if selector.vdpa_type else ()),
    ):
        if wanted:
            attributes[name] = one_or_all(wanted)
    index = "sfIndex" if is_auxiliary else "vfIndex"
    functions = [
        _functions("pfName", selector.pf_names, index),
        _functions("pf", [x.lower() for x in selector.root_devices], index),
    ]
    if chosen := [x for x in functions if x]:
        values["all"] = [{"any": x} if len(x) > 1 else x[0] for x in chosen]
    if not is_auxiliary:
        values["not"] = {"attributes": {"numVFs": ">0"}}
    return values


def _link_types(selector: Selector, *, is_layer: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Return the attribute for the type of the link, and its values; RDMA devices call it the layer."""
    name, words = ("linkLayer", _LAYERS) if is_layer else ("linkType", _TYPES)
    return [(name, tuple(words.get(x, x) for x in selector.link_types))]


def _functions(attribute: str, wanted: Sequence[str], index: str) -> list[Values]:
    """Return selectors of functions by their physical one: `ens1f0`, or `ens1f0#0,2-7` for some of them by `index`.

    If several name the same function, the first one counts (pkg/resources, `getItem`).
    """
    found: list[Values] = []
    named: set[str] = set()
    for text in wanted:
        match = _WITH_FUNCTIONS.fullmatch(text)
        name, ranges = (match[1], match[2]) if match else (text, None)
        if name in named:
            continue
        named.add(name)
        attributes: Values = {attribute: literal(name)}
        if ranges:
            attributes[index] = one_or_all([_range(part) for part in ranges.split(",") if part])
        found.append({"attributes": attributes})
    return found


def _range(part: str) -> Any:
    first, dash, last = part.partition("-")
    return f"{first}..{last}" if dash else int(first)
