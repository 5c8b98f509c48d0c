"""Reads a file and returns a `Config`, after everything has been checked."""

from collections.abc import Mapping as Entries
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from nodeplug.config.document import Document
from nodeplug.config.errors import ConfigError, ConfigUnreadable, Finding
from nodeplug.config.misplaced import MISPLACED
from nodeplug.config.nodes import check_names, entries_for
from nodeplug.config.resources import check_conflicts, check_keys, check_settings, resource
from nodeplug.config.schema import API_VERSION, File, ResourceEntry
from nodeplug.config.settings import Settings
from nodeplug.config.tree import SIZE_LIMIT, Mapping, Node, Scalar, Unreadable, parse
from nodeplug.version import VERSION
from resources.groups import Folder, PathSet
from resources.resource import Resource
from resources.selector import path_globs


class Config(Struct, frozen=True):
    """The content of a configuration. `source` is the file's name, `elsewhere` the resources for other nodes.

    `waiting` are those that depend on the node's labels while these are unknown, and those after the first of them.
    `selects_nodes`: some resource depends on labels, on whatever node.
    """

    resources: tuple[Resource, ...]
    settings: Settings = Settings()
    source: str = ""
    elsewhere: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    selects_nodes: bool = False

    @property
    def path_globs(self) -> tuple[str, ...]:
        """The globs below /dev of the resources, in order: the paths to list and to watch."""
        globs: dict[str, None] = {}
        for item in self.resources:
            globs.update(dict.fromkeys(_globs(item)))
        return tuple(globs)


def load(
    path: Path,
    node: str = "",
    environment_settings: Entries[str, Any] | None = None,
    labels: Entries[str, str] | None = None,
) -> Config:
    """Read a configuration file, as `loads` does. Raises `ConfigError` with all mistakes."""
    return loads(read(path), str(path), node, environment_settings, labels)


def read(path: Path) -> bytes:
    """Return a configuration file's content, at most one byte more than the limit.

    Raises `ConfigError` if there is no file, `ConfigUnreadable` if a later attempt can succeed.
    """
    try:
        if path.is_fifo() and not path.is_relative_to("/dev") and not path.is_relative_to("/proc"):
            # a shell's own pipes have writers; opening any other pipe would wait for one
            raise ConfigError(str(path), [Finding(1, 1, "this is a named pipe; give a file, or - for standard input")])
        with path.open("rb") as file:
            return file.read(SIZE_LIMIT + 1)
    except OSError as error:
        kind = ConfigError if isinstance(error, FileNotFoundError) else ConfigUnreadable
        raise kind(str(path), [Finding(1, 1, f"this file cannot be read: {error.strerror or error}")]) from None


def loads(
    data: bytes,
    source: str = "configuration",
    node: str = "",
    environment_settings: Entries[str, Any] | None = None,
    labels: Entries[str, str] | None = None,
) -> Config:
    """Read the content of a configuration file: the resources for `node` with `labels`; without a node, all of them.

    `labels` are None if they are unknown. `environment_settings` are settings by their names in the file. The file's
    own settings override them, and `settings.nodeName` overrides `node`. Raises `ConfigError` with all mistakes.
    """
    try:
        root, twice = parse(data)
    except Unreadable as error:
        raise ConfigError(source, [error.finding]) from None
    _check_kind(root, source)
    document = Document(root, File, MISPLACED)
    version = document.value.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        document.at(("apiVersion",), f"nodeplug {VERSION} does not know {version}", f"it reads {API_VERSION}")
    settings = Settings()
    if not document.is_wrong(("settings",)):
        own = document.value.get("settings", {})
        if own.get("metricsAddress") == "":
            del own["metricsAddress"]
        settings = msgspec.convert({**(environment_settings or {}), **own}, Settings)
        check_settings(document, settings)
    entries = {
        i: msgspec.convert(values, ResourceEntry)
        for i, values in enumerate(document.value.get("resources", ()))
        if not document.is_wrong(("resources", i))
    }
    for i, values in enumerate(document.value.get("resources", ())):
        if i not in entries and values:
            check_keys(document, ("resources", i), values, settings)
    found = {i: resource(document, ("resources", i), entry, settings) for i, entry in entries.items()}
    check_names(document, entries)
    here, waiting = entries_for(settings.node_name or node, labels, entries) if node else (entries, [])
    everywhere = {i: x for i, x in entries.items() if not x.on_nodes and not x.node_selector}
    check_conflicts(document, here if node else everywhere)
    if document.findings or twice:
        raise ConfigError(source, document.findings + twice)
    resources = tuple(item for i, item in found.items() if item is not None and i in here)
    names = {*waiting, *(item.name for item in resources)}
    elsewhere = dict.fromkeys(entry.name for entry in entries.values() if entry.name not in names)
    selects = any(entry.node_selector for entry in entries.values())
    return Config(resources, settings, source, tuple(elsewhere), tuple(waiting), selects)


def builtin() -> Config:
    """Return the configuration that comes with the program: a resource for each harmless class of devices."""
    import pkgutil  # imported here: the program can be an archive, and the daemon does not need this

    content = pkgutil.get_data("nodeplug", "builtin.yaml")
    assert content is not None
    return loads(content, "builtin.yaml")


def _check_kind(root: Node, source: str) -> None:
    """Raise `ConfigError` if the file is an object for the API server, in which every key would be unknown."""
    for key, value in root.entries if isinstance(root, Mapping) else ():
        if key.text == "kind" and isinstance(value, Scalar):
            message, hint = f"this is a {value.text} for kubectl, not a configuration", ""
            if value.text == "ConfigMap":
                message = "this is a ConfigMap for kubectl, not the configuration in it"
                hint = "write the text below its `config.yaml: |` to a file, and use that file"
            raise ConfigError(source, [Finding(value.line, value.column, message, hint)])


def _globs(item: Resource) -> tuple[str, ...]:
    in_group: tuple[str, ...] = ()
    if isinstance(item.group, PathSet):
        in_group = tuple(member.glob for member in item.group.members)
    elif isinstance(item.group, Folder):
        in_group = (item.group.glob,)
    return (*path_globs(item.selector), *in_group)
