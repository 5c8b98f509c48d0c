"""Reads another plugin's file, finds out whose it is, and converts it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from hostdevices import Host
from nodeplug.config import ConfigError, Finding
from nodeplug.config.document import Document
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Sequence, Unreadable, parse
from nodeplug.convert import (
    amd,
    generic,
    intel,
    intel_gpu,
    intel_qat,
    kubevirt,
    nvidia,
    rdma_shared,
    smarter,
    sriov,
)
from nodeplug.convert.conversion import Conversion, LeftOut, Offered, on_nodes
from nodeplug.convert.dangerous import with_danger
from nodeplug.convert.ownership import with_one_owner
from nodeplug.convert.wrapping import PERMITTED, Wrapping, key, unwrapped, with_text


class _Format(Struct, frozen=True):
    """Whose files these are; `key` is what all of them have. `domain` is that of the names where the file has none."""

    plugin: str
    key: str
    schema: type
    resources: Callable[[Any, str, Host], Iterator[Offered | LeftOut]]
    domain: str
    wrapping: Wrapping = Wrapping()


FORMATS: Mapping[str, _Format] = {
    "amd": _Format("AMD's k8s-device-plugin", "gpu", amd.File, amd.resources, "amd.com", amd.WRAPPING),
    "generic": _Format(
        "generic-device-plugin",
        "devices",
        generic.File,
        generic.resources,
        "squat.ai",
        Wrapping(image="generic-device-plugin"),
    ),
    **{
        f"intel-{x.name}": _Format(
            f"Intel's {x.name.upper()} device plugin", "", x.schema, x.resources, x.domain, x.wrapping
        )
        for x in (intel_gpu.PLUGIN, intel_qat.PLUGIN, *intel.PLUGINS)
    },
    "kubevirt": _Format("KubeVirt", PERMITTED, kubevirt.File, kubevirt.resources, "devices.kubevirt.io"),
    "nvidia": _Format("NVIDIA's k8s-device-plugin", "version", nvidia.File, nvidia.resources, "nvidia.com"),
    "rdma-shared": _Format("k8s-rdma-shared-dev-plugin", "configList", rdma_shared.File, rdma_shared.resources, "rdma"),
    "smarter": _Format("smarter-device-manager", "devicematch", smarter.File, smarter.resources, "smarter-devices"),
    "sriov": _Format("sriov-network-device-plugin", "resourceList", sriov.File, sriov.resources, "intel.com"),
}
"""The formats by the names that `--from` takes."""


def convert(data: bytes, source: str, host: Host, *, name: str = "", domain: str = "") -> Conversion:
    """Convert the content of the file `source`; `host` is the node that it is for.

    `name` is one of `FORMATS`; without it the file's keys say which. A ConfigMap is read for its one entry. `domain` is
    for resources whose names have none in the file. Raises `ConfigError` with everything that is not understood.
    """
    try:
        root, twice = parse(data)
        name, root = unwrapped(root, {x: (form.wrapping, form.schema) for x, form in FORMATS.items()}, name)
        name = name or _recognised(root)
    except Unreadable as error:
        raise ConfigError(source, [error.finding]) from None
    form = FORMATS[name]
    document = Document(_as_mapping(root), form.schema)
    if document.findings or twice:
        raise ConfigError(source, document.findings + twice)
    file: Any = msgspec.convert(document.value, form.schema)
    labels = getattr(file, "node_selector", {})
    resources = with_one_owner(on_nodes(form.resources(file, domain or form.domain, host), labels))
    return Conversion(source, form.plugin, tuple(with_danger(resources, host)))


def _recognised(root: Node) -> str:
    """Return the name of the format that a file's keys are of."""
    first = root.items[0] if isinstance(root, Sequence) and root.items else root
    keys = {key.text for key, _ in first.entries} if isinstance(first, Keys) else set()
    found = [name for name, form in FORMATS.items() if form.key in keys or (name == "generic" and "device" in keys)]
    if len(found) != 1:
        raise Unreadable(
            Finding(root.line, root.column, "this is no configuration that is known", f"--from {' | '.join(FORMATS)}")
        )
    return found[0]


def _as_mapping(root: Node) -> Node:
    """Return a file that is a list as one that has the key `devices`; `device` is another name for it."""
    if isinstance(root, Sequence):
        return Keys(((key("devices", root), root),), root.line, root.column)
    if isinstance(root, Keys):
        entries = [(with_text(k, "devices") if k.text == "device" else k, v) for k, v in root.entries]
        return Keys(tuple(entries), root.line, root.column)
    return root
