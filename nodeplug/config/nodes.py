"""`onNodes`: one file for unlike nodes.

A resource is for the nodes whose names fit one of its globs, or for all. Of several resources of one name the first
that is for a node counts there, so that one without globs, at the end, is for all the others.
"""

import os
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase

from nodeplug.config.document import Document
from nodeplug.config.schema import ResourceEntry


def node_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of this node in Kubernetes where the configuration does not say it."""
    return environment.get("NODE_NAME", "") or socket.gethostname().lower()


def entries_for(node: str, entries: Mapping[int, ResourceEntry]) -> dict[int, ResourceEntry]:
    """Return the entries that count on a node, by their places in the list."""
    names: set[str] = set()
    found: dict[int, ResourceEntry] = {}
    for i, entry in entries.items():
        if entry.name not in names and any(fnmatchcase(node, glob) for glob in _globs(entry) or ("*",)):
            names.add(entry.name)
            found[i] = entry
    return found


def check_names(document: Document, entries: Mapping[int, ResourceEntry]) -> None:
    """Add findings about entries that count nowhere, for one before them of their name is for every node."""
    everywhere: set[str] = set()
    for i, entry in entries.items():
        if entry.name in everywhere:
            message = f"{entry.name} is the name of two resources"
            hint = "to select more, use `any` in one of them; for other nodes, say `onNodes` in the first"
            document.at(("resources", i, "name"), message, hint)
        if not entry.on_nodes:
            everywhere.add(entry.name)


def _globs(entry: ResourceEntry) -> tuple[str, ...]:
    return (entry.on_nodes,) if isinstance(entry.on_nodes, str) else entry.on_nodes
