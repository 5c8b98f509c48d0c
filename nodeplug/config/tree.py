"""YAML text as a tree in which every node has its place; values are not interpreted yet.

Rules: one document of at most `SIZE_LIMIT` bytes of UTF-8; at most `DEPTH_LIMIT` levels; no aliases, which could make a
small file expand without end, and no tags. A duplicate key in a mapping is a finding; the first one counts.
"""

import codecs
from collections.abc import Iterator
from typing import TypeAlias

import yaml
from msgspec import Struct

from nodeplug.config.errors import Finding
from nodeplug.config.yaml_errors import plain_message

SIZE_LIMIT = 1 << 19
DEPTH_LIMIT = 24


class Scalar(Struct, frozen=True):
    """A text; `plain` if it has no quotes, so that YAML could take it for a number."""

    text: str
    plain: bool
    line: int
    column: int


class Sequence(Struct, frozen=True):
    """A list."""

    items: tuple["Node", ...]
    line: int
    column: int


class Mapping(Struct, frozen=True):
    """Keys and values in the order of the file."""

    entries: tuple[tuple[Scalar, "Node"], ...]
    line: int
    column: int


Node: TypeAlias = Scalar | Sequence | Mapping


class Unreadable(Exception):
    """The text is not YAML that this reader accepts; the rest of it cannot be checked."""

    def __init__(self, finding: Finding) -> None:
        """Keep the finding."""
        self.finding = finding
        super().__init__(finding.message)


def parse(data: bytes) -> tuple[Node, list[Finding]]:
    """Return the tree of the one document in `data`, and the duplicate keys. Raises `Unreadable`."""
    (root,), twice = _composed(data, several=False)
    return root, twice


def parse_several(data: bytes) -> tuple[list[Node], list[Finding]]:
    """Return the trees of all documents in `data`, as in a manifest, and the duplicate keys.

    There is at least one; documents without a value do not count. Raises `Unreadable`.
    """
    return _composed(data, several=True)


def _composed(data: bytes, *, several: bool) -> tuple[list[Node], list[Finding]]:
    text = _decoded(data)
    try:
        return _Composer(text).documents(several=several)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise Unreadable(Finding(line, column, f"this is not YAML: {plain_message(error, text)}")) from None
    except yaml.reader.ReaderError as error:
        place = _line_and_column(text, error.position)
        raise Unreadable(Finding(*place, f"the character #x{ord(text[error.position]):04x} is not allowed")) from None


def _decoded(data: bytes) -> str:
    if len(data) > SIZE_LIMIT:
        hint = "select devices by attributes or globs rather than one by one"
        raise Unreadable(Finding(1, 1, f"the file has more than {SIZE_LIMIT >> 10} KiB", hint))
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable(Finding(1, 1, "the file is UTF-16; save it as UTF-8"))
    if data.startswith(b"\x1f\x8b"):
        raise Unreadable(Finding(1, 1, "the file is compressed with gzip, not YAML", "a capture is for --root"))
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = _line_and_column(before, len(before))
        raise Unreadable(Finding(*place, f"the byte 0x{data[error.start]:02x} is not UTF-8")) from None


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class _Composer:
    def __init__(self, text: str) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.BaseLoader)
        self._twice: list[Finding] = []

    def documents(self, *, several: bool) -> tuple[list[Node], list[Finding]]:
        next(self._events)  # the stream's start
        roots: list[Node] = []
        while not isinstance(start := next(self._events), yaml.StreamEndEvent):
            if roots and not several:
                raise Unreadable(
                    Finding(
                        *_start(start),
                        "a second document begins here",
                        "only one is read; of a manifest for kubectl, use only the text below `config.yaml: |`",
                    )
                )
            root = self._node(next(self._events), 1)
            next(self._events)  # the document's end
            if not several or root != Scalar("", True, root.line, root.column):
                roots.append(root)
        if not roots:
            raise Unreadable(Finding(1, 1, "the file is empty", "" if several else "it needs at least `resources:`"))
        return roots, self._twice

    def _node(self, event: yaml.Event, depth: int) -> Node:
        line, column = _start(event)
        if depth > DEPTH_LIMIT:
            raise Unreadable(Finding(line, column, f"this is nested deeper than {DEPTH_LIMIT} levels"))
        if isinstance(event, yaml.AliasEvent):
            raise Unreadable(
                Finding(line, column, "aliases are not supported", "write the value out; put a glob in quotes")
            )
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise Unreadable(Finding(line, column, f"the tag {tag} is not supported", "leave it out"))
        if isinstance(event, yaml.ScalarEvent):
            if any("\ud800" <= character <= "\udfff" for character in event.value):
                raise Unreadable(Finding(line, column, "this text has half of a surrogate pair"))
            return Scalar(event.value, event.style is None, line, column)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(item, depth + 1))
            return Sequence(tuple(items), line, column)
        return Mapping(tuple(self._entries(depth)), line, column)

    def _entries(self, depth: int) -> Iterator[tuple[Scalar, Node]]:
        first: dict[str, Scalar] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise Unreadable(Finding(key.line, key.column, "a key must be a text", "is there an extra { or [?"))
            value = self._node(next(self._events), depth + 1)
            if key.text in first:
                seen = first[key.text]
                message = f"the key {key.text} appears twice"
                self._twice.append(Finding(key.line, key.column, message, f"the first is in line {seen.line}"))
                continue
            first[key.text] = key
            yield key, value


def _start(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
