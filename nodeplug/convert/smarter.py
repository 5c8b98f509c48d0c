"""smarter-device-manager: a list of expressions, each with the number of containers that can have a match.

It offers every file below /dev whose path matches, under its own name, `smarter-devices/ttyUSB0`; a folder (`^snd$`) as
a whole. So names depend on the host: each match on the host becomes a resource.

Source: smarter-project/smarter-device-manager, main.go and its example configurations.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from hostdevices import Host
from nodeplug.convert.conversion import LeftOut, Offered, Values, is_folder, select_paths
from resourceapi.cel.re2 import compile_regex
from resourceapi.cel.re2_syntax import RegexError

_GPU = "nvidia-gpu"  # not an expression: Tegra's GPUs, which have no node of their own
_DEPTH = 11
_ONE = "nothing here fits {}: this is the first one; each further one needs a resource of its own."
_SIMPLE = re.compile(r"\^([A-Za-z0-9_/-]+)(\[0-9\]\*)?\$")


class Device(Struct, frozen=True):
    """An entry of the list."""

    devicematch: str
    nummaxdevices: int = 1


class File(Struct, frozen=True):
    """The list."""

    devices: tuple[Device, ...]


def resources(file: File, domain: str, host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each file below /dev that matches one of the expressions, and for each name in them."""
    there = sorted(_paths(host, "/dev", _DEPTH))
    names: set[str] = set()
    for entry in file.devices:
        if not entry.nummaxdevices:
            yield LeftOut(entry.devicematch, "no pod could have one (nummaxdevices is 0)")
            continue
        if entry.devicematch == _GPU:
            yield LeftOut(
                f"{domain}/{_GPU}N", "containers get Tegra's GPUs through a runtime class, without device nodes"
            )
            continue
        try:
            expression = compile_regex(entry.devicematch)
        except RegexError as error:
            yield LeftOut(entry.devicematch, f"not an expression: {error}")
            continue
        found = [path for path in there if expression.is_match(path.removeprefix("/dev/"))]
        absent = _absent(entry.devicematch) if not found else ""
        for path in found or filter(None, [absent]):
            name = f"{domain}/{path.removeprefix('/dev/').replace('/', '_')}"
            if name in names:
                yield LeftOut(name, f"an entry before {entry.devicematch} matches it already")
                continue
            names.add(name)
            remarks = (_ONE.format(entry.devicematch),) if absent and "[0-9]" in entry.devicematch else ()
            yield Offered(_resource(name, path, entry.nummaxdevices, host), remarks)
        if not found and not absent:
            yield LeftOut(entry.devicematch, "nothing here fits it: convert the file on the node, or with --root")


def _resource(name: str, path: str, shares: int, host: Host) -> Values:
    meant: Values = {"group": {"folder": path}} if is_folder(host, path) else select_paths([path])
    return {"name": name, **meant, **({"shares": shares} if shares != 1 else {})}


def _absent(expression: str) -> str:
    """Return the path that a plain expression names, the first one of many; empty if it is not plain."""
    found = _SIMPLE.fullmatch(expression)
    return f"/dev/{found[1]}{'0' if found[2] else ''}" if found else ""


def _paths(host: Host, folder: str, depth: int) -> Iterator[str]:
    folders = set(host.folders(folder) or ())
    for name in host.list(folder):
        yield f"{folder}/{name}"
        if name in folders and depth:
            yield from _paths(host, f"{folder}/{name}", depth - 1)
