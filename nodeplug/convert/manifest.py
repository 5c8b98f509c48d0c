"""The parts of a file for kubectl that belong to a plugin: its ConfigMap, its DaemonSet, its operator's objects.

A manifest has several documents, `kubectl get -o yaml` a list; namespaces, accounts and roles in it do not concern
devices. If a plugin's file is present, its DaemonSet is not converted.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from nodeplug.config import Finding
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Scalar, Unreadable
from nodeplug.config.tree import Sequence as Items
from nodeplug.convert.operators import POLICY, files_of, is_an_operators
from nodeplug.convert.wrapping import (
    CONFIG_MAP,
    DAEMON_SET,
    PERMITTING,
    Formats,
    below,
    entries_of,
    parsed,
    text_of,
    unwrapped,
)


class Part(Struct, frozen=True):
    """A part to convert, and the name of its format.

    `node` is the name of the node that it is for, `labels` those of the nodes that it is for; empty: it is for all.
    """

    name: str
    root: Node
    kind: str = ""
    node: str = ""
    labels: Mapping[str, str] = {}


class Manifest(Struct, frozen=True):
    """The parts of a file. `others` are objects that could have belonged to a plugin and do not, with the reason."""

    parts: Sequence[Part]
    others: Sequence[Finding] = ()


def manifest(
    roots: Sequence[Node], formats: Formats, keys: Mapping[str, Sequence[str]], name: str, entry: str
) -> Manifest:
    """Return the parts of a file's documents to convert; `keys` identify files without a kind.

    `name` is the format that the user names, `entry` the entry of a ConfigMap. Raises `Unreadable`.
    """
    found = list(_objects(roots))
    kinds = {CONFIG_MAP, DAEMON_SET, *PERMITTING, POLICY, *(wrapping.kind for wrapping, _ in formats.values())}
    meant = [x for x in found if len(found) == 1 or (not (kind := _kind(x)) or kind in kinds) or is_an_operators(x)]
    if not meant:
        hint = f"kinds: {', '.join(sorted(kinds - {''}))}"
        raise Unreadable(Finding(roots[0].line, roots[0].column, "none of these objects is a device plugin", hint))
    parts: list[Part] = []
    others: list[Finding] = []
    for root in meant:
        try:
            each = [Part(x, inner, _kind(root), labels=labels) for x, inner, labels in files_of(root)]
            if each or (each := _parts_of_nodes(root, formats, keys, entry)):
                parts += each
                continue
            known, inner = unwrapped(root, formats, name, entry)
            parts.append(Part(known or _recognised(inner, keys), inner, _kind(root)))
        except Unreadable as error:
            others.append(error.finding)
    if not parts:
        raise Unreadable(others[0])
    files = {part.name for part in parts if part.kind != DAEMON_SET}
    return Manifest([x for x in parts if x.kind != DAEMON_SET or x.name not in files], others)


def _objects(roots: Sequence[Node]) -> Iterator[Node]:
    for root in roots:
        items = below(root, "items") if _kind(root).endswith("List") or _kind(root) == "List" else None
        if isinstance(items, Items):
            yield from items.items
        else:
            yield root


def _parts_of_nodes(root: Node, formats: Formats, keys: Mapping[str, Sequence[str]], wanted: str) -> list[Part]:
    """Return the files of a ConfigMap that has one for each node, or for each kind of node; else none."""
    if _kind(root) != CONFIG_MAP or not isinstance(root, Keys) or len(entries := entries_of(root)) < 2 or wanted:
        return []
    found: list[Part] = []
    for name, text in entries:
        try:
            inner = parsed(text) if isinstance(text, Scalar) else text
            known = _recognised(inner, keys)
        except Unreadable:
            return []
        wrapping, _ = formats[known]
        if not (wrapping.entry_is_node or wrapping.entry_label):
            return []
        if wrapping.entry_is_node:
            found.append(Part(known, inner, CONFIG_MAP, node=name.text))
        else:
            found.append(Part(known, inner, CONFIG_MAP, labels={wrapping.entry_label: name.text}))
    return found


def _kind(root: Node) -> str:
    return text_of(root, "kind") if isinstance(root, Keys) else ""


def _recognised(root: Node, known: Mapping[str, Sequence[str]]) -> str:
    """Return the name of the format that a file's keys belong to."""
    first = root.items[0] if isinstance(root, Items) and root.items else root
    keys = {key.text for key, _ in first.entries} if isinstance(first, Keys) else set()
    found = [name for name, wanted in known.items() if keys.intersection(wanted)]
    if len(found) != 1:
        raise Unreadable(
            Finding(
                root.line,
                root.column,
                "this is not a configuration of a known plugin",
                f"name the plugin with --from: {', '.join(known)}",
            )
        )
    return found[0]
