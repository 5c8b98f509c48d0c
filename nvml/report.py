"""The output of the process that calls NVML: one JSON object a line, a report, an event, or why it ends.

Fields that a driver does not provide are empty, 0 or None.
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

SONAME = "libnvidia-ml.so.1"
SWITCH = "switch"
"""Where links of NVLink lead that go through switches (NVSwitch): all of a machine are one fabric."""


class Instance(Struct, frozen=True):
    """A MIG instance: one compute instance of a GPU instance. `memory` is in bytes, the placement in slices."""

    gpu_instance: int
    compute_instance: int
    uuid: str = ""
    profile: str = ""  # "1g.10gb"
    memory: int = 0
    placement: tuple[int, int] | None = None  # its first slice, and how many


class Gpu(Struct, frozen=True):
    """A GPU by its PCI address as sysfs writes it. `memory` is in bytes.

    `uncorrected` counts memory errors since the driver was loaded; None where the GPU has no ECC. One that `is_lost`
    says nothing of itself any more. In MIG mode (`is_mig`) it has no use but by its instances.
    """

    address: str
    uuid: str = ""
    memory: int = 0
    uncorrected: int | None = None
    faults: tuple[str, ...] = ()  # in words
    instances: tuple[Instance, ...] = ()
    links: Mapping[str, int] = {}  # how many active ones of NVLink lead where: addresses of GPUs, or SWITCH
    is_lost: bool = False
    is_mig: bool = False


class Report(Struct, frozen=True, tag_field="is", tag="report"):
    """All GPUs that it was asked for and that the library has, or has lost."""

    gpus: tuple[Gpu, ...]


class Xid(Struct, frozen=True, tag_field="is", tag="xid"):
    """An error that the driver has reported (XID); of a whole GPU where the instances are None."""

    address: str
    number: int
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Problem(Struct, frozen=True, tag_field="is", tag="problem"):
    """Why nothing can be said, in words."""

    text: str


Line: TypeAlias = Report | Xid | Problem

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Line).decode
