"""Which network interfaces carry the node's default routes, themselves or below a bond, bridge, VLAN or tunnel.

They are never offered: whoever gets one takes the node off the network.
"""

from hostdevices.host import Host

_TABLE_LIMIT = 4 << 20  # bytes; a default route is at the beginning, however many others follow
_ANY_4 = "00000000"
_ANY_6 = "0" * 32
_REJECT = 0x0200  # RTF_REJECT, linux/route.h


def uplinks(host: Host) -> frozenset[str]:
    """Return the names of interfaces with a default route, of all that they are stacked on, and of their masters."""
    found: set[str] = set()
    waiting = _with_default_route(host)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        below = (x.removeprefix("lower_") for x in host.list(f"/sys/class/net/{name}") if x.startswith("lower_"))
        waiting.update(below)
        if master := host.link(f"/sys/class/net/{name}/master"):
            waiting.add(master)
    return frozenset(found)


def _with_default_route(host: Host) -> set[str]:
    names: set[str] = set()
    for line in _lines(host, "/proc/net/route"):
        fields = line.split()
        if len(fields) >= 8 and fields[1] == fields[7] == _ANY_4 and not _rejects(fields[3]):
            names.add(fields[0])
    for line in _lines(host, "/proc/net/ipv6_route"):
        fields = line.split()
        if len(fields) >= 10 and fields[0] == _ANY_6 and fields[1] == "00" and not _rejects(fields[8]):
            names.add(fields[9])
    return names


def _lines(host: Host, path: str) -> list[str]:
    return (host.read_bytes(path, _TABLE_LIMIT) or b"").decode(errors="replace").splitlines()


def _rejects(flags: str) -> bool:
    try:
        return bool(int(flags, 16) & _REJECT)
    except ValueError:
        return True
