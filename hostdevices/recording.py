"""A recording: a host's tree in one compressed file, one JSON array a line, sorted by path.

    ["/sys/class/misc/fuse", "link", "../../devices/virtual/misc/fuse"]
    ["/sys/devices/virtual/misc/fuse/dev", "text", "10:229\\n"]
    ["/sys/devices/pci0000:00/0000:00:01.0/config", "bytes", "hoAAEA=="]
    ["/dev/fuse", "node", "c 10:229"]

`there` is a file or folder whose content was not recorded. Folders on the way to an entry are not recorded. The
first line contains the format.
"""

import base64
import binascii
import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from hostdevices.tree import Node, StoredTree, parse_node

What: TypeAlias = Literal["there", "text", "bytes", "link", "node"]


class Entry(msgspec.Struct, frozen=True, array_like=True, order=True, forbid_unknown_fields=True):
    """One path and what is there."""

    path: str
    what: What
    content: str = ""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first line."""

    format: Literal["nodeplug-capture"] = "nodeplug-capture"
    version: Literal[1] = 1
    masked: bool = False


_MAX_LINE = 1 << 20  # bytes; no line that we write is nearly as long
_MAX_UNPACKED = 1 << 28  # bytes unpacked; a large server's capture has a hundredth of that
_header = msgspec.json.Decoder(Header)
_entry = msgspec.json.Decoder(Entry)


def packed(entries: Iterable[Entry], *, masked: bool) -> bytes:
    """Return a recording's bytes; equal entries give equal bytes."""
    lines = [msgspec.json.encode(Header(masked=masked)), *map(msgspec.json.encode, sorted(entries))]
    return gzip.compress(b"\n".join(lines) + b"\n", mtime=0)


class Recording(StoredTree):
    """The tree of a recording, in memory."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Take entries in any order; the later one of two for a path counts.

        Raises ValueError if the folders are too deep for the memory.
        """
        self._entries: dict[str, Entry] = {}
        self._below: dict[str, set[str]] = {"": set()}
        size = 0  # of the folders' paths, which grow with the square of a path's depth
        for entry in entries:
            self._entries[entry.path] = entry
            path = entry.path
            while path:
                path, _, name = path.rpartition("/")
                if path not in self._below:
                    size += len(path)
                    if size > _MAX_UNPACKED:
                        raise ValueError(f"more than {_MAX_UNPACKED >> 20} MiB of folders' paths")
                siblings = self._below.setdefault(path, set())
                if name in siblings:
                    break
                siblings.add(name)

    @classmethod
    def load(cls, file: Path) -> "Recording":
        """Read a recording. Raises OSError, and ValueError with file and line if it is not one."""
        number = 1
        try:
            with gzip.open(file) as lines:
                _header.decode(lines.readline(_MAX_LINE))
                entries: list[Entry] = []
                while line := lines.readline(_MAX_LINE):
                    number += 1
                    if lines.tell() > _MAX_UNPACKED:
                        raise ValueError(f"{file}: more than {_MAX_UNPACKED >> 20} MiB unpacked")
                    entries.append(_entry.decode(line))
        except gzip.BadGzipFile:
            hint = (
                "make one on the node with `nodeplug capture`; to use an archive of /sys, unpack it and name the folder"
            )
            raise ValueError(f"{file}: not a capture of nodeplug (not gzip); {hint}") from None
        except (EOFError, zlib.error):
            raise ValueError(f"{file}: cut short after line {number}") from None
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ValueError(f"{file}:{number}: not a capture of nodeplug: {error}") from None
        try:
            return cls(entries)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None

    def _read(self, real: str, limit: int) -> bytes | None:
        match self._entries.get(real):
            case Entry(what="text", content=content):
                return content.encode()[:limit]
            case Entry(what="bytes", content=content):
                try:
                    return base64.b64decode(content)[:limit]
                except binascii.Error:
                    return None
        return None

    def _names(self, real: str) -> list[str]:
        return list(self._below.get(real, ()))

    def _folders(self, real: str) -> list[str] | None:
        if real not in self._below:
            return None
        return [name for name in self._names(real) if f"{real}/{name}" in self._below]

    def _target(self, real: str) -> str | None:
        entry = self._entries.get(real)
        return entry.content if entry and entry.what == "link" else None

    def _exists(self, real: str) -> bool:
        return real in self._entries or real in self._below

    def _is_public(self, real: str) -> bool:
        return self._read(real, 0) is not None

    def _node(self, real: str) -> Node | None:
        entry = self._entries.get(real)
        return parse_node(entry.content.encode()) if entry and entry.what == "node" else None
