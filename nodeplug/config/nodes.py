"""`onNodes` and `nodeSelector`: one file for different nodes.

A resource applies to the nodes whose names match one of its globs and whose labels match its selector, or to all nodes.
Of several resources with one name, a node uses the first one that applies to it, so that one without either key, at the
end, applies to all other nodes.

While the labels of a node are unknown, the first resource that depends on them and all later ones wait: a later one
could get devices of an earlier one.
"""

import os
import re
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase

from nodeplug.config.document import Document, Path
from nodeplug.config.schema import ResourceEntry

Labels = Mapping[str, str]

_NODE_GLOB = re.compile(r"[a-z0-9.*?\[\]!-]+")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE_GLOB = re.compile(r"[A-Za-z0-9._*?\[\]!-]*")


def node_name(configured: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of this node in Kubernetes: from the configuration, the pod's environment, or the host name."""
    return configured or environment.get("NODE_NAME", "") or socket.gethostname().lower()


def entries_for(
    node: str, labels: Labels | None, entries: Mapping[int, ResourceEntry]
) -> tuple[dict[int, ResourceEntry], list[str]]:
    """Return the entries for a node, by their places in the list, and the names of those that wait.

    `labels` are the node's; None if they are unknown.
    """
    found: dict[int, ResourceEntry] = {}
    waiting: dict[str, None] = {}
    names: set[str] = set()
    for i, entry in entries.items():
        is_named = any(fnmatchcase(node, glob) for glob in _texts(entry.on_nodes) or ("*",))
        if entry.name in names or not is_named or not _fits(entry.node_selector, labels):
            continue
        if waiting or (entry.node_selector and labels is None):
            waiting[entry.name] = None
        else:
            names.add(entry.name)
            found[i] = entry
    return found, list(waiting)


def check_names(document: Document, entries: Mapping[int, ResourceEntry]) -> None:
    """Add findings about entries that apply to no node: none can match, or an earlier entry applies to every node."""
    everywhere: set[str] = set()
    for i, entry in entries.items():
        _check_nodes(document, ("resources", i), entry)
        if entry.name in everywhere:
            message = f"{entry.name} is the name of two resources"
            hint = "to select more, use `any` in one of them; for other nodes, set `onNodes` in the first"
            document.at(("resources", i, "name"), message, hint)
        if not entry.on_nodes and not entry.node_selector:
            everywhere.add(entry.name)


def _check_nodes(document: Document, path: Path, entry: ResourceEntry) -> None:
    for place, glob in _placed((*path, "onNodes"), entry.on_nodes):
        if not _NODE_GLOB.fullmatch(glob):
            hint = "lower-case letters, digits, dots and dashes; `*`, `?` and `[]` stand for others"
            document.at(place, f"no node can have the name {glob or '(empty)'}", hint)
    for name, wanted in entry.node_selector.items():
        domain, slash, rest = name.rpartition("/")
        if not _LABEL.fullmatch(rest) or (slash and not _DOMAIN.fullmatch(domain)):
            hint = "as in example.com/pool: letters, digits, dots, dashes and underscores"
            document.at((*path, "nodeSelector", name), f"no label can have the name {name}", hint, key=True)
        for place, glob in _placed((*path, "nodeSelector", name), wanted):
            if not _VALUE_GLOB.fullmatch(glob):
                hint = "letters, digits, dots, dashes and underscores; `*`, `?` and `[]` stand for others"
                document.at(place, f"no label can have the value {glob}", hint)


def _placed(path: Path, value: str | tuple[str, ...]) -> list[tuple[Path, str]]:
    return [(path, value)] if isinstance(value, str) else [((*path, i), text) for i, text in enumerate(value)]


def _fits(selector: Mapping[str, str | tuple[str, ...]], labels: Labels | None) -> bool:
    """Return whether labels match a selector; true if they are unknown."""
    return labels is None or all(
        name in labels and any(fnmatchcase(labels[name], glob) for glob in _texts(wanted))
        for name, wanted in selector.items()
    )


def _texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
