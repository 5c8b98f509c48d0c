"""Reads another plugin's file, determines the plugin, and converts the file."""

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from hostdevices import Host
from nodeplug.config import ConfigError, Finding, loads
from nodeplug.config.document import Document
from nodeplug.config.resources import name_error
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Sequence, Unreadable, parse_several
from nodeplug.convert import (
    akri,
    amd,
    generic,
    habana,
    host_device,
    intel,
    intel_gpu,
    intel_qat,
    kubevirt,
    nvidia,
    rdma_shared,
    smarter,
    sriov,
)
from nodeplug.convert.conversion import Conversion, LeftOut, Offered, Values, on_nodes
from nodeplug.convert.dangerous import with_danger
from nodeplug.convert.go_yaml import decoded_by_go
from nodeplug.convert.json_text import without_tabs
from nodeplug.convert.manifest import Manifest, Part, manifest
from nodeplug.convert.ownership import with_one_owner
from nodeplug.convert.wrapping import PERMITTED, Wrapping, key, with_text


class _Format(Struct, frozen=True):
    """The format of a plugin's files; each file has one of `keys`. `domain` is the default for names without one."""

    plugin: str
    keys: tuple[str, ...]
    schema: type
    resources: Callable[[Any, str, Host], Iterator[Offered | LeftOut]]
    domain: str
    wrapping: Wrapping = Wrapping()


FORMATS: Mapping[str, _Format] = {
    "akri": _Format("Akri", (), akri.File, akri.resources, "akri.sh", akri.WRAPPING),
    "amd": _Format("AMD's k8s-device-plugin", ("gpu",), amd.File, amd.resources, "amd.com", amd.WRAPPING),
    "generic": _Format(
        "generic-device-plugin",
        ("devices", "device"),
        generic.File,
        generic.resources,
        "squat.ai",
        Wrapping(image="generic-device-plugin"),
    ),
    "habana": _Format("Habana's device plugin", (), habana.File, habana.resources, "habana.ai", habana.WRAPPING),
    "host-device": _Format(
        "k8s-host-device-plugin",
        ("hostDevices",),
        host_device.File,
        host_device.resources,
        "github.com",
        Wrapping(image="k8s-host-device-plugin", only_file=True),
    ),
    **{
        f"intel-{x.name}": _Format(
            f"Intel's {x.name.upper()} device plugin", (), x.schema, x.resources, x.domain, x.wrapping
        )
        for x in (intel_gpu.PLUGIN, intel_qat.PLUGIN, *intel.PLUGINS)
    },
    "kubevirt": _Format("KubeVirt", (PERMITTED,), kubevirt.File, kubevirt.resources, "devices.kubevirt.io"),
    "nvidia": _Format(
        "NVIDIA's k8s-device-plugin", nvidia.KEYS, nvidia.File, nvidia.resources, "nvidia.com", nvidia.WRAPPING
    ),
    "rdma-shared": _Format(
        "k8s-rdma-shared-dev-plugin",
        ("configList",),
        rdma_shared.File,
        rdma_shared.resources,
        "rdma",
        Wrapping(image="k8s-rdma-shared-dev-plugin", only_file=True),
    ),
    "smarter": _Format(
        "smarter-device-manager",
        ("devicematch",),
        smarter.File,
        smarter.resources,
        "smarter-devices",
        Wrapping(image="smarter-device-manager", only_file=True),
    ),
    "sriov": _Format(
        "sriov-network-device-plugin",
        ("resourceList",),
        sriov.File,
        sriov.resources,
        sriov.DOMAIN,
        Wrapping(image="sriov-network-device-plugin", only_file=True, entry_is_node=True),
    ),
}
"""The formats by their names for `--from`."""


def convert(data: bytes, source: str, host: Host, *, name: str = "", domain: str = "", entry: str = "") -> Conversion:
    """Convert the content of the file `source`; `host` is the node that it is for.

    `name` is one of `FORMATS`; without it, the file's keys determine the format. A ConfigMap is read for its one entry,
    or for `entry`; of several objects, all that belong to a plugin are converted. `domain` is for resources whose names
    have none in the file. Raises `ConfigError` with everything that is not understood.
    """
    try:
        found, twice = _read(data, name, entry)
    except Unreadable as error:
        raise ConfigError(source, [error.finding]) from None
    schemas = [FORMATS[part.name].schema for part in found.parts]
    roots = [decoded_by_go(_as_mapping(x.root), schema) for x, schema in zip(found.parts, schemas, strict=True)]
    documents = [Document(root, schema) for root, schema in zip(roots, schemas, strict=True)]
    if findings := [x for document in documents for x in document.findings] + twice:
        raise ConfigError(source, findings)
    items = (
        _with_name(item) for each in zip(found.parts, documents, strict=True) for item in _items(*each, domain, host)
    )
    resources = _without_invalid(with_danger(with_one_owner(items), host))
    return Conversion(source, _plugins(found), resources, tuple(found.others))


def plugins_of(data: bytes) -> str:
    """Return the plugins that a configuration file is for, by its keys alone; empty if they match no known plugin."""
    try:
        found, _ = _read(data, "", "")
    except Unreadable:
        return ""
    return _plugins(found)


def _read(data: bytes, name: str, entry: str) -> tuple[Manifest, list[Finding]]:
    """Return the parts of a file that can be converted, and its duplicate keys. Raises `Unreadable`."""
    roots, twice = parse_several(without_tabs(data))
    formats = {x: (form.wrapping, form.schema) for x, form in FORMATS.items()}
    return manifest(roots, formats, {x: form.keys for x, form in FORMATS.items()}, name, entry), twice


def _plugins(found: Manifest) -> str:
    return " and ".join(dict.fromkeys(FORMATS[part.name].plugin for part in found.parts))


def _with_name(item: Offered | LeftOut) -> Offered | LeftOut:
    """Return a resource whose name no kubelet accepts as left out; the others are converted."""
    name = item.resource["name"] if isinstance(item, Offered) else ""
    why = name_error(name) if name else ""
    return LeftOut(name, f"it cannot be a resource name: {why}") if why else item


def _without_invalid(items: Iterable[Offered | LeftOut]) -> list[Offered | LeftOut]:
    """Return the resources; one that our file cannot express, alone or after the others, is left out, with why."""
    known = list(items)
    if _config_errors(known):
        known = [_left_out_if_invalid(item, [item]) for item in known]
    while _config_errors(known):  # two resources conflict
        last = bisect.bisect_left(range(len(known)), True, key=lambda last: bool(_config_errors(known[: last + 1])))
        known[last] = _left_out_if_invalid(known[last], known[: last + 1])
    return known


def _left_out_if_invalid(item: Offered | LeftOut, among: list[Offered | LeftOut]) -> Offered | LeftOut:
    return LeftOut(item.resource["name"], why) if isinstance(item, Offered) and (why := _config_errors(among)) else item


def _config_errors(items: list[Offered | LeftOut]) -> str:
    """Return the findings of `nodeplug check` for a file with these resources; empty if it is valid."""
    try:
        loads(Conversion("", "", items).text().encode())
    except ConfigError as error:
        return "; ".join(x.message for x in error.findings)
    return ""


def _items(part: Part, document: Document, domain: str, host: Host) -> Iterator[Offered | LeftOut]:
    form = FORMATS[part.name]
    file: Any = msgspec.convert(document.value, form.schema)
    labels = {**getattr(file, "node_selector", {}), **part.labels}
    nodes: Values = {"onNodes": part.node} if part.node else {}
    if labels:
        nodes["nodeSelector"] = labels
    return on_nodes(form.resources(file, domain or form.domain, host), nodes)


def _as_mapping(root: Node) -> Node:
    """Return a file that is a list as one that has the key `devices`; `device` is another name for it."""
    if isinstance(root, Sequence):
        return Keys(((key("devices", root), root),), root.line, root.column)
    if isinstance(root, Keys):
        entries = [(with_text(k, "devices") if k.text == "device" else k, v) for k, v in root.entries]
        return Keys(tuple(entries), root.line, root.column)
    return root
