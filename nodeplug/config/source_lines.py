"""The places of resources in the file: their lines, for explanations."""

from collections.abc import Mapping

from msgspec import Struct

from nodeplug.config import tree


class SourceLines(Struct, frozen=True):
    """The line at which a resource begins, and the line of its selector; they count from 1."""

    line: int
    select_line: int


def source_lines(content: bytes) -> Mapping[str, SourceLines]:
    """Return the place of each resource in a valid file; nothing for an invalid one."""
    try:
        root, _ = tree.parse(content)
    except tree.Unreadable:
        return {}
    resources = _entries(root).get("resources")
    items = resources.items if isinstance(resources, tree.Sequence) else ()
    return {name: place for name, place in map(_lines, items) if name}


def _lines(item: tree.Node) -> tuple[str, SourceLines]:
    entries = _entries(item)
    name, select = entries.get("name"), entries.get("select", entries.get("group", item))
    return name.text if isinstance(name, tree.Scalar) else "", SourceLines(item.line, select.line)


def _entries(node: tree.Node | None) -> dict[str, tree.Node]:
    return {key.text: value for key, value in node.entries} if isinstance(node, tree.Mapping) else {}
