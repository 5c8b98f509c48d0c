"""RDMA devices: one per ibdev, with the nodes that verbs, management and the connection manager need.

Nodes are found by their `ibdev`, below the same hardware. With exclusive network namespaces (`rdma system`), a device
that was moved is not visible here.
"""

from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device, Devnode
from hostdevices.host import Host
from hostdevices.readers.location import SysfsLocation, SysfsLocations
from hostdevices.readers.pci import partition_key
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import LINK_LOSSES, Sample
from hostdevices.readers.sysfs import devnodes, interfaces, known, natural_order, number, shared_node, text, version

_CONNECTION_MANAGER = "/dev/infiniband/rdma_cm"
_NODE_CLASSES = ("infiniband_verbs", "infiniband_mad")


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per entry of /sys/class/infiniband."""
    locations = SysfsLocations(host)

    def ibdev(syspath: str) -> Device:
        name = syspath.rpartition("/")[2]
        location = locations.of(syspath)
        identity, parents = locations.identify("rdma", location)
        nodes = tuple(_nodes(host, syspath, name))
        if nodes:
            nodes += shared_node(host, _CONNECTION_MANAGER)
        return Device(
            id=identity,
            kind="rdma",
            name=name,
            syspath=syspath,
            attributes=known({"name": name, **location.attributes, **_attributes(host, syspath, location)}),
            devnodes=nodes,
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    yield from each(entries(host, "/sys/class/infiniband"), ibdev)


def _nodes(host: Host, syspath: str, name: str) -> Iterator[Devnode]:
    parent = syspath.rpartition("/infiniband/")[0]
    for node_class in _NODE_CLASSES:
        folder = f"{parent}/{node_class}"
        for node in sorted(host.list(folder), key=natural_order):
            if host.read(f"{folder}/{node}/ibdev") == name:
                yield from devnodes(host, f"{folder}/{node}")


def _attributes(host: Host, syspath: str, location: SysfsLocation) -> dict[str, AttributeValue | None]:
    ports = sorted(host.list(f"{syspath}/ports"), key=natural_order)
    states = {port: _word(host, f"{syspath}/ports/{port}/state") for port in ports}
    # The most informative port: the first that is up, else the first.
    port = next((port for port in ports if states[port] == "ACTIVE"), next(iter(ports), ""))
    below = f"{syspath}/ports/{port}"
    return {
        "nodeType": _word(host, f"{syspath}/node_type"),
        "nodeGUID": text(host, f"{syspath}/node_guid"),
        "sysImageGUID": text(host, f"{syspath}/sys_image_guid"),
        "hcaType": text(host, f"{syspath}/hca_type"),
        "boardID": text(host, f"{syspath}/board_id"),
        "firmware": version(host.read(f"{syspath}/fw_ver")),
        "ports": len(ports),
        "pKey": partition_key(host, syspath),
        "linkLayer": text(host, f"{below}/link_layer"),
        "state": states.get(port),
        "physState": _word(host, f"{below}/phys_state"),
        "rate": text(host, f"{below}/rate"),
        "netdev": text(host, f"{below}/gid_attrs/ndevs/0") or _interface(host, syspath, location),
    }


def _interface(host: Host, syspath: str, location: SysfsLocation) -> str | None:
    """Return the network interface of the same hardware, if it has exactly one of its own."""
    parent = syspath.rpartition("/infiniband/")[0]
    names = interfaces(host, parent) if location.function else []
    return names[0] if len(names) == 1 else None


def _word(host: Host, path: str) -> str | None:
    """Return `ACTIVE` of `4: ACTIVE`."""
    value = text(host, path)
    return value.partition(":")[2].strip() or value if value else None


def signals(sample: Sample, syspath: str) -> None:
    """Take the states of the ports."""
    host = sample.host
    ports = host.list(f"{syspath}/ports")
    states = {port: (text(host, f"{syspath}/ports/{port}/state") or "").partition(":")[2].strip() for port in ports}
    if states and "ACTIVE" not in states.values():
        shown = ", ".join(f"port {x} is {y or 'unknown'}" for x, y in states.items())
        sample.faults["port"] = f"no port is active: {shown}"
    losses = [number(host, f"{syspath}/ports/{port}/counters/link_downed") or 0 for port in ports]
    if losses:
        sample.counters[LINK_LOSSES] = sum(losses)


RDMA = Reader(
    "rdma",
    frozenset({"infiniband", "infiniband_verbs", "infiniband_mad", "net"}),
    read,
    one_per="RDMA device with its uverbs, umad, issm, rdma_cm nodes",
    attributes=attributes("""
        nodeType      text         "CA"
        nodeGUID      text
        sysImageGUID  text
        hcaType       text         the model of the card: "MT4123"
        boardID       text         the id of the board (PSID)
        firmware      version
        ports         integer      how many ports it has
        pKey          hexadecimal  the first partition key of port 1
        linkLayer     text         "InfiniBand", "Ethernet"
        state         text         of the first active port: "ACTIVE"
        physState     text         of that port: "LinkUp"
        rate          text         of that port: "100 Gb/sec (4X EDR)"
        netdev        text         the network interface of the same hardware
    """),
    presets={"rdma": PresetFacts("RDMA devices with their verbs nodes")},
    signals=signals,
    is_polled=True,
    needs_node=True,
)
READERS = (RDMA,)
