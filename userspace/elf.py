"""The name with which programs load a shared library: DT_SONAME of an ELF file.

Source: System V ABI, ELF-64 object file format: file header, program header, dynamic section. 64-bit, little-endian.
"""

import os
import struct
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_END, _STRINGS, _SONAME = 0, 5, 14  # tags of the dynamic section
_MAX_SEGMENTS = 256
_MAX_DYNAMIC = 64 * 1024  # bytes
_MAX_NAME = 255  # bytes of a file's name


class NotElf(ValueError):
    """A file that is not a complete 64-bit ELF file."""


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def soname(path: str) -> str:
    """Return the soname of a library; empty if it has none. Raises `NotElf`, and OSError of the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return _soname(descriptor)
    except (NotElf, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise NotElf(f"{path}: {error}") from None
    finally:
        os.close(descriptor)


def _soname(descriptor: int) -> str:
    header = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
    if not header[0].startswith(_MAGIC):
        raise NotElf("no 64-bit little-endian ELF file")
    table, entry_size, number = header[5], header[9], header[10]
    if entry_size != _SEGMENT.size or number > _MAX_SEGMENTS:
        raise NotElf("its program headers are not valid")
    headers = _SEGMENT.iter_unpack(_exactly(descriptor, number * entry_size, table))
    segments = [_Segment(kind=x[0], offset=x[2], address=x[3], size=x[5]) for x in headers]
    dynamic = next((x for x in segments if x.kind == _DYNAMIC), None)
    if dynamic is None:
        return ""
    tags: dict[int, int] = {}
    size = min(dynamic.size, _MAX_DYNAMIC) // _ENTRY.size * _ENTRY.size
    for tag, value in _ENTRY.iter_unpack(_exactly(descriptor, size, dynamic.offset)):
        if tag == _END:
            break
        tags.setdefault(tag, value)
    if _SONAME not in tags:
        return ""
    strings = tags.get(_STRINGS, 0)
    loaded = next((x for x in segments if x.kind == _LOAD and x.address <= strings < x.address + x.size), None)
    if loaded is None:
        raise NotElf("its strings are in no segment")
    offset = strings - loaded.address + loaded.offset + tags[_SONAME]
    name, end, _ = os.pread(descriptor, _MAX_NAME + 1, offset).partition(b"\0")
    if not end or b"/" in name:
        raise NotElf("its soname is no file's name")
    return name.decode()


def _exactly(descriptor: int, size: int, offset: int) -> bytes:
    data = os.pread(descriptor, size, offset)
    if len(data) < size:
        raise NotElf("it ends too early")
    return data
