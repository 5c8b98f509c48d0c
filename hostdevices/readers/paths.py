"""Files below /dev that configured globs match: devices without another reader, or with a name that the user knows.

The name that the glob matched is the identity. It stays the same when a link (/dev/serial/by-id/...) starts to lead to
another node. Links are followed inside /dev only.
"""

from collections.abc import Iterable, Iterator

from msgspec import structs

from hostdevices.device import Device, Devnode
from hostdevices.device_folders import DeviceFolders
from hostdevices.globs import path_pattern
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.inventory import Problem
from hostdevices.readers.previous_scan import NOTHING, PreviousScan
from hostdevices.readers.reader import Finding, Reader, attributes, each
from hostdevices.readers.sysfs import known, numa_nodes, text_value

_MAX_FOLDERS = 4096  # the most folders that are listed for one glob


def paths_reader(globs: Iterable[str]) -> Reader:
    """Return a reader for the matches of the globs; it reads again after events of the subsystem `path`."""
    patterns = tuple(dict.fromkeys(globs))
    return structs.replace(
        PATH,
        read=lambda host: read_paths(host, patterns),
        read_again=lambda host, previous: read_paths(host, patterns, previous),
    )


def read_paths(host: Host, globs: Iterable[str], previous: PreviousScan = NOTHING) -> Iterator[Finding]:
    """Yield one device of kind `path` per device node or link to one that a glob matches.

    `*` does not cross `/`, `**` does (see globs.path_pattern). Other files are skipped.
    """
    known = previous.known(lambda device: device.devnodes[0].path)
    folders = DeviceFolders(host)
    found: set[str] = set()
    for glob in globs:
        for number, listed in enumerate(folders.listed(glob)):
            if number == _MAX_FOLDERS:
                yield Problem(glob, f"leads to more than {_MAX_FOLDERS} folders; files in the others are not found")
                break
            if listed.is_last:
                wanted = path_pattern(listed.names)
                found.update(f"{listed.folder}/{name}" for name in host.list(listed.folder) if wanted.fullmatch(name))
    yield from each(sorted(found), lambda path: known.get(path) or _device(host, path))


def parts_of_other_devices(devices: Iterable[Device]) -> Iterator[Device]:
    """Yield the devices; one of kind `path` becomes a part of the device whose node it names.

    So /dev/ttyUSB0 by its path and as a tty has one owner. A node that several devices share (/dev/vfio/vfio) belongs
    to none of them. Of several names for one node, the first is the whole.
    """
    everything = tuple(devices)
    paths = [device for device in everything if device.kind == "path"]
    holders: dict[tuple[str, int, int], list[Device]] = {}
    if paths:
        for device in everything:
            for node in device.devnodes if device.kind != "path" else ():
                holders.setdefault(_numbers(node), []).append(device)
    yield from (device for device in everything if device.kind != "path")
    named: dict[tuple[str, int, int], Device] = {}
    for path in paths:
        numbers = _numbers(path.devnodes[0])
        whole = named.get(numbers) or _outermost(holders.get(numbers, []))
        device = structs.replace(path, parents=(whole.id, *whole.parents)) if whole else path
        named.setdefault(numbers, device)
        yield device


def _numbers(node: Devnode) -> tuple[str, int, int]:
    return node.kind, node.major, node.minor


def _outermost(holders: list[Device]) -> Device | None:
    """Return the one device that all others of `holders` are parts of."""
    ids = {holder.id for holder in holders}
    found = [holder for holder in holders if ids.isdisjoint(holder.parents)]
    return found[0] if len(found) == 1 else None


def _device(host: Host, path: str) -> Device | None:
    real = host.resolve(path)
    if real is None or not real.startswith("/dev/"):
        return None
    node = host.devnode(path)
    if node is None:
        return None
    behind = f"/sys/dev/{'char' if node.kind == 'c' else 'block'}/{node.major}:{node.minor}"
    syspath = host.resolve(behind) or ""
    facts = {
        "name": text_value(path.removeprefix("/dev/")),
        "path": text_value(path),
        "subsystem": host.link(f"{behind}/subsystem"),
    }
    return Device(
        id=device_id("path", path.removeprefix("/dev/")),
        kind="path",
        name=path.removeprefix("/dev/"),
        syspath=syspath,
        attributes=known(facts),
        devnodes=(node if real == path else structs.replace(node, target=real),),
        numa_nodes=numa_nodes(host, syspath),
    )


PATH = Reader(
    "path",
    frozenset({"path"}),
    lambda _: iter(()),  # only a configuration has globs
    one_per="file below /dev that a configured glob matches",
    attributes=attributes("""
        path       text  the path below /dev
        subsystem  text  of the device behind the node
    """),
)
