"""The output of the process that calls NVML: one JSON object a line, a report, an event, or why it ends.

Fields that a driver does not provide are empty, 0 or None.
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

SONAME = "libnvidia-ml.so.1"
SWITCH = "switch"
"""The other end of NVLink links that go through switches (NVSwitch): all switches of a machine are one fabric."""


class Instance(Struct, frozen=True):
    """A MIG instance: one compute instance of a GPU instance. `memory` is in bytes, the placement in slices."""

    gpu_instance: int
    compute_instance: int
    uuid: str = ""
    profile: str = ""  # "1g.10gb"
    memory: int = 0
    placement: tuple[int, int] | None = None  # its first slice, and the number of slices


class Gpu(Struct, frozen=True):
    """A GPU by its PCI address in sysfs' form. `memory` is in bytes.

    `uncorrected` counts memory errors since the driver was loaded; None if the GPU has no ECC. A GPU that `is_lost`
    reports nothing else. In MIG mode (`is_mig`) only its instances can be used.
    """

    address: str
    uuid: str = ""
    memory: int = 0
    uncorrected: int | None = None
    faults: tuple[str, ...] = ()  # in words
    instances: tuple[Instance, ...] = ()
    links: Mapping[str, int] = {}  # number of active NVLink links by their other end: a GPU's address, or SWITCH
    is_lost: bool = False
    is_mig: bool = False


class Report(Struct, frozen=True, tag_field="is", tag="report"):
    """All requested GPUs that the library has or has lost."""

    gpus: tuple[Gpu, ...]


class Xid(Struct, frozen=True, tag_field="is", tag="xid"):
    """An error that the driver has reported (XID); of a whole GPU if the instances are None."""

    address: str
    number: int
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Problem(Struct, frozen=True, tag_field="is", tag="problem"):
    """Why the library cannot be used, in words."""

    text: str


Line: TypeAlias = Report | Xid | Problem

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Line).decode
