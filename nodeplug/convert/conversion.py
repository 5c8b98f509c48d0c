"""The result of a conversion: resources as in our file, remarks, and what was left out."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import yaml
from msgspec import Struct, structs

from hostdevices import Host
from nodeplug.config import Finding
from nodeplug.config.schema import API_VERSION

Values: TypeAlias = dict[str, Any]
"""A part of a configuration file as plain values."""

_WIDTH = 116


class Offered(Struct, frozen=True):
    """A resource for our file. `remarks` are the differences from before; `mounted` are the host paths of its mounts.

    `settings` are the daemon's settings that it needs.
    """

    resource: Values
    remarks: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    settings: Values = {}


class LeftOut(Struct, frozen=True):
    """A resource that cannot be converted, and why."""

    name: str
    reason: str


class Conversion(Struct, frozen=True):
    """A whole file: `source` is the file's name, `plugin` the program that it was for.

    `others` are objects in it that are not a plugin's configuration, with the reason.
    """

    source: str
    plugin: str
    resources: Sequence[Offered | LeftOut]
    others: Sequence[Finding] = ()

    @property
    def left_out(self) -> list[LeftOut]:
        """The resources that could not be converted."""
        return [x for x in self.resources if isinstance(x, LeftOut)]

    def text(self) -> str:
        """Return our configuration file, with all remarks as comments."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# Converted from {self.source}, a configuration of {self.plugin}."
        yield from (f"# Line {x.line} belongs to another object: {x.message}." for x in self.others)
        yield f"apiVersion: {API_VERSION}"
        offered = [x for x in self.resources if isinstance(x, Offered)]
        settings = {key: value for x in offered for key, value in x.settings.items()}
        if mounted := sorted({path for x in offered for path in x.mounted}):
            settings["allowedMounts"] = mounted
        if settings:
            yield from _dumped({"settings": settings}, "")
        is_any = bool(offered)
        yield "resources:" if is_any else "resources: []"
        for item in self.resources:
            if isinstance(item, LeftOut):
                yield f"  # {item.name} is left out: {item.reason}"
                continue
            yield from (f"  # {remark}" for remark in item.remarks)
            yield from _dumped([item.resource], "  ")


class _Dumper(yaml.SafeDumper):
    """Indents lists below their keys, and quotes texts that some version of YAML takes for a number."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, indentless=False)

    def text(self, value: str) -> yaml.ScalarNode:
        style = None if _PLAIN.fullmatch(value) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_PLAIN = re.compile(r"[A-Za-z/][\w./*{}-]+")  # the booleans among them are quoted in any case
_Dumper.add_representer(str, _Dumper.text)


def _dumped(values: Any, indent: str) -> Iterator[str]:
    dumped = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
    )
    return (indent + line for line in dumped.splitlines())


def is_folder(host: Host, path: str) -> bool:
    """Return whether a path is a folder: on the host, or if it does not exist there, on usual hosts."""
    return host.folders(path) is not None or (path in _FOLDERS and not host.exists(path))


_FOLDERS = frozenset({"/dev/snd", "/dev/dri", "/dev/input", "/dev/infiniband", "/dev/bus/usb"})


def select_paths(paths: Sequence[str]) -> Values:
    """Return a selector of devices by their nodes.

    A USB device or an NVMe controller also has the nodes of its parts.
    """
    values: Values = {"select": {"path": one_or_all(paths)}}
    return {**values, "nodes": one_or_all(paths)} if any(path.startswith(_WHOLES) for path in paths) else values


_WHOLES = ("/dev/bus/usb/", "/dev/nvme")


def one_or_all(values: Sequence[Any]) -> Any:
    """Return a single value itself, several as a list."""
    return values[0] if len(values) == 1 else list(values)


def literal(text: str) -> str:
    """Return a glob that matches only this name, up to the length of an attribute."""
    return text[:64].translate({ord(x): f"[{x}]" for x in "*?["})


def invalid_id_reason(*ids: Sequence[str]) -> str:
    """Return why a plugin that compares ids as the kernel writes them finds nothing by one; empty if it can."""
    wrong = next((x for each in ids for x in each if not _ID.fullmatch(x)), None)
    return "" if wrong is None else f"no function has the id {wrong}: the plugin uses four digits, in lower case"


_ID = re.compile(r"[0-9a-f]{4}")


def on_nodes(items: Iterable[Offered | LeftOut], nodes: Values) -> Iterator[Offered | LeftOut]:
    """Yield the resources, restricted to some nodes; `nodes` are the keys that select them."""
    for item in items:
        if nodes and isinstance(item, Offered):
            name, *rest = item.resource.items()
            item = structs.replace(item, resource=dict([name, *nodes.items(), *rest]))
        yield item
