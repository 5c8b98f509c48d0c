"""Network interfaces, real and virtual. The identity is the location and the port on it, not the name.

An interface that was moved to another network namespace is not found here, which is no fault of its hardware.
"""

from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.inventory import Problem
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import LINK_LOSSES, Sample
from hostdevices.readers.sysfs import is_up, known, link_type, natural, number, represented, text, uevent
from hostdevices.readers.uplinks import uplinks


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per network interface of this network namespace."""
    locations = SysfsLocations(host)
    known_uplinks = uplinks(host)
    if known_uplinks.unknown_reason:
        yield Problem("/proc/net/route", known_uplinks.unknown_reason)

    def interface(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        location = locations.of(syspath)
        port = natural(host, f"{syspath}/dev_port")
        function = represented(host, syspath)
        role = (*((f"p{port}",) if port else ()), *((function,) if function else ()))
        identity, parents = locations.identify("nic", location, *role)
        kind_of_link = link_type(host, syspath)
        if kind_of_link is None:
            return None  # bonding_masters and similar files, or gone
        virtual = location.attributes["bus"] == "virtual"
        facts: dict[str, AttributeValue | None] = {
            "name": name,
            **location.attributes,
            "mac": text(host, f"{syspath}/address"),
            "mtu": number(host, f"{syspath}/mtu"),
            "operstate": text(host, f"{syspath}/operstate"),
            "carrier": host.read(f"{syspath}/carrier") == "1",
            "linkType": kind_of_link,
            "devType": uevent(host, syspath).get("DEVTYPE"),
            "virtual": virtual,
            **known_uplinks.mark(name),
            "master": host.link(f"{syspath}/master"),
        }
        if not virtual:
            facts |= {
                "speed": natural(host, f"{syspath}/speed") or None,
                "devPort": port,
                "physPort": text(host, f"{syspath}/phys_port_name"),
                "representor": True if function else None,
                "physSwitch": text(host, f"{syspath}/phys_switch_id"),
            }
        return Device(
            id=identity,
            kind="nic",
            name=name,
            syspath=syspath,
            attributes=known(facts),
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    yield from each(entries(host, "/sys/class/net"), interface)


def signals(sample: Sample, syspath: str) -> None:
    """Take the state of the link."""
    # An interface that is down waits for its user to configure it: its link state means nothing yet.
    if is_up(sample.host, syspath) and sample.host.read(f"{syspath}/carrier") == "0":
        sample.faults["carrier"] = "it has no carrier: check the cable and the other end"
    sample.count(LINK_LOSSES, f"{syspath}/carrier_down_count")


NIC = Reader(
    "nic",
    frozenset({"net"}),
    read,
    one_per="network interface",
    attributes=attributes("""
        mac            text
        mtu            integer
        speed          integer  Mbit/s
        carrier        boolean  always there
        operstate      text
        linkType       text     "ethernet", "infiniband", "can", "loopback"
        devType        text     "bond", "wlan"
        virtual        boolean  always there
        uplink         boolean  it carries the node's routes: never offered; always there unless it is unknown
        uplinkUnknown  boolean  true: it cannot be distinguished from the one that does
        otherDefaultRoute  boolean  true: a default route of another table than main leads over it
        devPort        integer
        physPort       text
        representor    boolean  true: it is another function's port in the card's switch (switchdev)
        physSwitch     text
        master         text     the interface of the node that it is a part of: a bond, bridge, VRF and the like
    """),
    presets={
        "nic": PresetFacts(
            "network interfaces with hardware behind them, no representors; never the node's uplink",
            lacking={"virtual": True, "linkType": "loopback", "representor": True},
        ),
    },
    signals=signals,
    is_polled=True,
)
READERS = (NIC,)
