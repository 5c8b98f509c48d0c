"""The kernel's tables of routes, connections and mounts, damaged: devices in use, or an error."""

import base64

from hostdevices import Device, Devnode, Host, UnreadableFile
from hostdevices.readers.uplinks import uplinks
from hostdevices.recording import Entry, Recording
from hostdevices.usage import connected_addresses, in_use_reason

_FUNCTION = "/sys/devices/pci0000:00/0000:00:01.0"
_TABLES = ("net/route", "net/ipv6_route", "net/dev", "net/tcp", "net/tcp6", "self/mountinfo", "1/mountinfo", "swaps")
_DISK = Device("d", "block", "x", attributes={}, devnodes=(Devnode("/dev/sda", "b", 8, 0),))
TABLES = (
    b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    b"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
    b"00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001"
    b" 00000400 00000001 00000000 00000003     eth0\n",
    b"  sl  local_address rem_address   st\n   0: 0100007F:0050 0100007F:9C40 01 00000000:00000000 00:00000000\n"
    b"   1: 00000000000000000000000001000000:0050 00000000000000000000000001000000:9C40 01 00000000:00000000\n",
    b"36 35 8:0 / /mnt rw,noatime master:1 - ext4 /dev/sda rw\n37 35 0:5 / /dev rw - devtmpfs none rw\n",
    b"Filename\tType\tSize\tUsed\tPriority\n/dev/sda partition 1 0 -2\n",
    b"Inter-|   Receive\n face |bytes\n  eth0: 1 2 3\n",
)


def tables(data: bytes) -> str:
    """All tables have the same content, and each reader parses its own format."""
    text = base64.b64encode(data).decode()
    entries = [Entry(f"/proc/{name}", "bytes", text) for name in _TABLES]
    entries += [
        Entry(f"{_FUNCTION}/net/eth0/type", "text", "1\n"),
        Entry("/sys/class/net/eth0", "link", f"../../../{_FUNCTION[1:]}/net/eth0"),
        Entry(f"{_FUNCTION}/class", "text", "0x020000\n"),
    ]
    host = Host(tree=Recording(entries))
    known = uplinks(host)
    try:
        addresses, why = connected_addresses(host), in_use_reason(host, _FUNCTION, [_DISK])
    except UnreadableFile:
        return "unreadable"
    assert why.isprintable()
    return "an uplink" if "eth0" in known.carrying else "addresses" if addresses else "in use" if why else "free"
