"""`onNodes` and `nodeSelector`: one file for unlike nodes.

A resource is for the nodes whose names fit one of its globs and whose labels are as its selector says, or for all. Of
several resources of one name the first that is for a node counts there, so that one without either, at the end, is for
all the others.

Labels that nobody has told are no labels: the first resource that depends on them, and all behind it, wait, for they
could be given what is another's.
"""

import os
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase

from nodeplug.config.document import Document
from nodeplug.config.schema import ResourceEntry

Labels = Mapping[str, str]


def node_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of this node in Kubernetes where the configuration does not say it."""
    return environment.get("NODE_NAME", "") or socket.gethostname().lower()


def entries_for(
    node: str, labels: Labels | None, entries: Mapping[int, ResourceEntry]
) -> tuple[dict[int, ResourceEntry], list[str]]:
    """Return the entries that count on a node, by their places in the list, and the names of those that wait.

    `labels` are the node's; None: nobody has told them.
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
    """Add findings about entries that count nowhere, for one before them of their name is for every node."""
    everywhere: set[str] = set()
    for i, entry in entries.items():
        if entry.name in everywhere:
            message = f"{entry.name} is the name of two resources"
            hint = "to select more, use `any` in one of them; for other nodes, say `onNodes` in the first"
            document.at(("resources", i, "name"), message, hint)
        if not entry.on_nodes and not entry.node_selector:
            everywhere.add(entry.name)


def _fits(selector: Mapping[str, str | tuple[str, ...]], labels: Labels | None) -> bool:
    """Tell whether labels are as a selector says; those that are not known may be."""
    return labels is None or all(
        name in labels and any(fnmatchcase(labels[name], glob) for glob in _texts(wanted))
        for name, wanted in selector.items()
    )


def _texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
