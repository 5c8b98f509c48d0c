"""Files below /dev that configured globs match: devices that no other reader knows, or that the user knows by a name.

The name that the glob matched is the identity and stays so when a link (/dev/serial/by-id/...) comes to lead to another
node. Links are followed inside /dev only.
"""

from collections.abc import Iterable, Iterator

from msgspec import structs

from hostdevices.device import Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.matching import path_pattern
from hostdevices.readers.reader import Finding, Reader, each
from hostdevices.readers.sysfs import known, numa_nodes, text_value

_DEPTH = 8  # folders that ** goes down at the most


def paths_reader(globs: Iterable[str]) -> Reader:
    """Return a reader of what the globs match; wake it with events of the subsystem `path`."""
    patterns = tuple(dict.fromkeys(globs))
    return Reader("path", frozenset({"path"}), lambda host: read_paths(host, patterns))


def read_paths(host: Host, globs: Iterable[str]) -> Iterator[Finding]:
    """Yield one device of kind `path` per device node or link to one that a glob matches.

    `*` does not cross `/`, `**` does (see matching.path_pattern). What is no device node is passed over.
    """
    found = {path for glob in globs for path in _matches(host, glob)}
    yield from each(sorted(found), lambda path: _device(host, path))


def parts_of_other_devices(devices: Iterable[Device]) -> Iterator[Device]:
    """Yield the devices; one of kind `path` becomes a part of the device whose node it names.

    So /dev/ttyUSB0 by its path and as a tty has one owner. A node that several devices share (/dev/vfio/vfio) belongs
    to none of them.
    """
    everything = tuple(devices)
    if not any(device.kind == "path" for device in everything):
        yield from everything
        return
    holders: dict[tuple[str, int, int], list[Device]] = {}
    for device in everything:
        for node in device.devnodes if device.kind != "path" else ():
            holders.setdefault((node.kind, node.major, node.minor), []).append(device)
    for device in everything:
        if device.kind == "path":
            node = device.devnodes[0]
            holding = holders.get((node.kind, node.major, node.minor), [])
            wholes = {holder.id for holder in holding}
            outermost = [holder for holder in holding if wholes.isdisjoint(holder.within)]
            if len(outermost) == 1:
                device = structs.replace(device, within=(outermost[0].id, *outermost[0].within))
        yield device


def _device(host: Host, path: str) -> Device | None:
    real = host.resolve(path)
    if real is None or not real.startswith("/dev/"):
        return None
    node = host.devnode(path)
    if node is None:
        return None
    behind = f"/sys/dev/{'char' if node.kind == 'c' else 'block'}/{node.major}:{node.minor}"
    syspath = host.resolve(behind) or ""
    attributes = {
        "name": text_value(path.removeprefix("/dev/")),
        "path": text_value(path),
        "subsystem": host.link(f"{behind}/subsystem"),
    }
    return Device(
        id=device_id("path", path.removeprefix("/dev/")),
        kind="path",
        name=path.removeprefix("/dev/"),
        syspath=syspath,
        attributes=known(attributes),
        devnodes=(node if real == path else structs.replace(node, target=real),),
        numa_nodes=numa_nodes(host, syspath),
    )


def _matches(host: Host, glob: str) -> Iterator[str]:
    """Yield the paths below /dev that a glob matches, listing only the folders that it can concern."""
    if not glob.startswith("/dev/") or "/../" in glob or "/./" in glob:
        return
    pattern = path_pattern(glob)
    parts = glob.split("/")[2:]
    yield from (path for path in _candidates(host, "/dev", parts) if pattern.fullmatch(path))


def _candidates(host: Host, folder: str, parts: list[str]) -> Iterator[str]:
    if not parts:
        return
    if parts[0] == "**" and len(parts) > 1:
        yield from _candidates(host, folder, parts[1:])
        if folder.count("/") < _DEPTH:
            for name in host.list(folder):
                # A link to a folder would lead to the same nodes again, or round in a circle.
                if host.link(f"{folder}/{name}") is None:
                    yield from _candidates(host, f"{folder}/{name}", parts)
        return
    wanted = path_pattern(parts[0])
    for name in filter(wanted.fullmatch, host.list(folder)):
        if len(parts) == 1:
            yield f"{folder}/{name}"
        else:
            yield from _candidates(host, f"{folder}/{name}", parts[1:])
