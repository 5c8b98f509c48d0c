"""Network interfaces, real and virtual. The name is no identity: the place is, and the port on it.

An interface that was moved to another network namespace is not here; that is no fault of its hardware.
"""

import re
from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.readers.place import Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import known, natural, number, text, uevent
from hostdevices.readers.uplinks import uplinks

_LINK_TYPES = {1: "ethernet", 32: "infiniband", 772: "loopback", 65534: "none"}  # linux/if_arp.h
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+")


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per network interface of this network namespace."""
    places = Places(host)
    carrying = uplinks(host)

    def interface(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        place = places.of(syspath)
        port = natural(host, f"{syspath}/dev_port")
        label = text(host, f"{syspath}/phys_port_name") or ""
        role = (f"p{port}",) if port else ()
        if _REPRESENTOR.fullmatch(label):
            role = (*role, label)
        identity, within = places.identify("nic", place, *role)
        link_type = number(host, f"{syspath}/type")
        if link_type is None:
            return None  # bonding_masters and its like, or gone
        virtual = place.attributes["bus"] == "virtual"
        attributes: dict[str, AttributeValue | None] = {
            "name": name,
            **place.attributes,
            "mac": text(host, f"{syspath}/address"),
            "mtu": number(host, f"{syspath}/mtu"),
            "operstate": text(host, f"{syspath}/operstate"),
            "carrier": host.read(f"{syspath}/carrier") == "1",
            "linkType": _LINK_TYPES.get(link_type, str(link_type)),
            "devType": uevent(host, syspath).get("DEVTYPE"),
            "virtual": virtual,
            "uplink": name in carrying,
            "master": host.link(f"{syspath}/master"),
        }
        if not virtual:
            attributes |= {
                "speed": natural(host, f"{syspath}/speed") or None,
                "devPort": port,
                "physPort": label,
                "physSwitch": text(host, f"{syspath}/phys_switch_id"),
            }
        return Device(
            id=identity,
            kind="nic",
            name=name,
            syspath=syspath,
            attributes=known(attributes),
            numa_nodes=place.numa_nodes,
            within=within,
        )

    yield from each(entries(host, "/sys/class/net"), interface)


NIC = Reader("nic", frozenset({"net"}), read)
