"""Singletons of the misc class: kvm, fuse, tun, vhost-net, vsock, rtc and their like. Their name is their identity."""

from collections.abc import Iterator

from hostdevices.device import Device
from hostdevices.host import Host, UnreadableFile
from hostdevices.identity import device_id
from hostdevices.inventory import Problem
from hostdevices.readers.reader import Finding, Reader
from hostdevices.readers.sysfs import devnodes, numa_nodes


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per entry of /sys/class/misc that has a node."""
    for name in host.list("/sys/class/misc"):
        syspath = host.resolve(f"/sys/class/misc/{name}")
        if syspath is None:
            continue
        try:
            nodes = devnodes(host, syspath)
            if nodes:
                yield Device(
                    id=device_id("misc", name),
                    kind="misc",
                    name=name,
                    syspath=syspath,
                    attributes={"name": name, "bus": "virtual"},
                    devnodes=nodes,
                    numa_nodes=numa_nodes(host, syspath),
                )
        except UnreadableFile as error:
            yield Problem(syspath, str(error))


MISC = Reader("misc", frozenset({"misc"}), read)
