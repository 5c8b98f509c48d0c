"""One reader per device class. A new class is a file here (classes.py: a row there) and its name in `FILES`.

reader.py defines what a reader declares about its class, location.py the attributes of every location;
docs/device-classes.md is the catalogue as a page. Ids of vendors and models are lower-case hexadecimal digits without
0x ("8086", "020000"). Texts are cut at 64 bytes with an ellipsis. A value that the kernel writes in an unexpected form
is a `Problem` of that device.
"""

from collections.abc import Mapping
from importlib import import_module

from hostdevices.device import Device
from hostdevices.readers.paths import PATH, parts_of_other_devices, paths_reader, read_paths
from hostdevices.readers.reader import Finding, Reader

FILES = (  # in the order of a scan
    "misc",
    "pci",
    "gpu",
    "accel",
    "intel_io",
    "net",
    "rdma",
    "vdpa",
    "vfio",
    "usb",
    "tty",
    "sound",
    "classes",
    "block",
)

READERS: tuple[Reader, ...] = tuple(
    reader for file in FILES for reader in import_module(f"hostdevices.readers.{file}").READERS
)
BY_KIND: Mapping[str, Reader] = {reader.kind: reader for reader in (*READERS, PATH)}


def readers_of(device: Device) -> tuple[Reader, ...]:
    """Return the reader of a device, or those of a group's members."""
    ids = device.children if device.kind not in BY_KIND else ()
    kinds = (device.kind, *(name for i in ids for name in _kinds_of(i)))
    return tuple(BY_KIND[kind] for kind in dict.fromkeys(kinds) if kind in BY_KIND)


def can_be_renumbered(device: Device) -> bool:
    """Return whether another device can have one of this one's nodes later."""
    readers = readers_of(device)
    return not readers or any(reader.can_be_renumbered for reader in readers)


def _kinds_of(identity: str) -> tuple[str, str]:
    """Return the possible kinds at the beginning of an id (identity.py): dma_heap, or dma."""
    first, second, *_ = (*identity.split("-"), "")
    return f"{first}_{second}", first


__all__ = [
    "BY_KIND",
    "FILES",
    "READERS",
    "Finding",
    "Reader",
    "can_be_renumbered",
    "parts_of_other_devices",
    "paths_reader",
    "read_paths",
    "readers_of",
]
