"""Reads another plugin's file, finds out whose it is, and converts it."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from hostdevices import Host
from nodeplug.config import ConfigError, Finding
from nodeplug.config.document import Document
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Scalar, Sequence, Unreadable, parse
from nodeplug.convert import generic, kubevirt, nvidia, rdma_shared, smarter, sriov
from nodeplug.convert.conversion import Conversion, LeftOut, Offered
from nodeplug.convert.dangerous import with_danger
from nodeplug.convert.ownership import with_one_owner


class _Format(Struct, frozen=True):
    """Whose files these are; `key` is what all of them have. `domain` is that of the names where the file has none."""

    plugin: str
    key: str
    schema: type
    resources: Callable[[Any, str, Host], Iterator[Offered | LeftOut]]
    domain: str


_PERMITTED = "permittedHostDevices"
FORMATS: Mapping[str, _Format] = {
    "generic": _Format("generic-device-plugin", "devices", generic.File, generic.resources, "squat.ai"),
    "kubevirt": _Format("KubeVirt", _PERMITTED, kubevirt.File, kubevirt.resources, "devices.kubevirt.io"),
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
        root = _unwrapped(root)
        name = name or _recognised(root)
    except Unreadable as error:
        raise ConfigError(source, [error.finding]) from None
    form = FORMATS[name]
    document = Document(_as_mapping(root), form.schema)
    if document.findings or twice:
        raise ConfigError(source, document.findings + twice)
    file: Any = msgspec.convert(document.value, form.schema)
    resources = with_one_owner(form.resources(file, domain or form.domain, host))
    return Conversion(source, form.plugin, tuple(with_danger(resources, host)))


def _unwrapped(root: Node) -> Node:
    """Return what is in a ConfigMap or a KubeVirt object, or behind the arguments of a command line."""
    if isinstance(root, Keys) and _text(root, "kind") == "KubeVirt":
        inner: Node | None = root
        for key in ("spec", "configuration"):
            inner = _value(inner, key) if isinstance(inner, Keys) else None
        permitted = _value(inner, _PERMITTED) if isinstance(inner, Keys) else None
        if permitted is None:
            raise Unreadable(Finding(root.line, root.column, f"this KubeVirt has no spec.configuration.{_PERMITTED}"))
        return Keys(((_key(_PERMITTED, root), permitted),), root.line, root.column)
    if isinstance(root, Keys) and _text(root, "kind") == "ConfigMap":
        data = _value(root, "data")
        entries = data.entries if isinstance(data, Keys) else ()
        if len(entries) != 1 or not isinstance(entries[0][1], Scalar):
            wanted = "give the one that is the plugin's as a file of its own"
            raise Unreadable(Finding(root.line, root.column, f"this ConfigMap has {len(entries)} entries", wanted))
        return _parsed(entries[0][1])
    if isinstance(root, Sequence) and any(isinstance(x, Scalar) and x.text.startswith("--device") for x in root.items):
        return _arguments(root)
    return root


def _arguments(root: Sequence) -> Keys:
    """Return what `--device VALUE` and `--device=VALUE` stand for; other arguments are about the program."""
    texts = [x for x in root.items if isinstance(x, Scalar)]
    found = [
        _parsed(after if one.text == "--device" else _with_text(one, one.text.removeprefix("--device=")))
        for one, after in zip(texts, [*texts[1:], Scalar("", False, root.line, root.column)], strict=True)
        if one.text == "--device" or one.text.startswith("--device=")
    ]
    domain = [x.text.removeprefix("--domain=") for x in texts if x.text.startswith("--domain=")]
    domain += [b.text for a, b in pairwise(texts) if a.text == "--domain"]
    entries: list[tuple[Scalar, Node]] = [(_key("devices", root), Sequence(tuple(found), root.line, root.column))]
    entries += [(_key("domain", root), _key(x, root)) for x in domain[:1]]
    return Keys(tuple(entries), root.line, root.column)


def _parsed(scalar: Scalar) -> Node:
    """Return what a text is as YAML; whatever is wrong with it is at the text's own place."""
    try:
        root, twice = parse(scalar.text.encode())
    except Unreadable as error:
        found = error.finding
        message = f"{found.message} (line {found.line} of this text)"
        raise Unreadable(Finding(scalar.line, scalar.column, message, found.hint)) from None
    if twice:
        raise Unreadable(Finding(scalar.line, scalar.column, twice[0].message))
    return root


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
        return Keys(((_key("devices", root), root),), root.line, root.column)
    if isinstance(root, Keys):
        entries = [(_with_text(k, "devices") if k.text == "device" else k, v) for k, v in root.entries]
        return Keys(tuple(entries), root.line, root.column)
    return root


def _value(root: Keys, name: str) -> Node | None:
    return next((value for key, value in root.entries if key.text == name), None)


def _text(root: Keys, name: str) -> str:
    value = _value(root, name)
    return value.text if isinstance(value, Scalar) else ""


def _key(text: str, at: Node) -> Scalar:
    return Scalar(text, True, at.line, at.column)


def _with_text(scalar: Scalar, text: str) -> Scalar:
    return Scalar(text, scalar.plain, scalar.line, scalar.column)
