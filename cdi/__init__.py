"""Container Device Interface specs: what a container runtime changes in a container that requests a device.

edits -> Device.of -> Spec.of (lowest version) -> CdiDirectory.write (validated, atomic) -> qualified_name
"""

from cdi.errors import CdiError, InvalidSpec
from cdi.files import CdiDirectory, file_name, remove_half_written, replace_file
from cdi.names import kind_of, qualified_name, split_qualified_name
from cdi.spec import (
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Spec,
    decode,
    encode,
    required_version,
)
from cdi.validate import validate

__all__ = [
    "CdiDirectory",
    "CdiError",
    "ContainerEdits",
    "Device",
    "DeviceNode",
    "Hook",
    "IntelRdt",
    "InvalidSpec",
    "Mount",
    "NetDevice",
    "Spec",
    "decode",
    "encode",
    "file_name",
    "kind_of",
    "qualified_name",
    "remove_half_written",
    "replace_file",
    "required_version",
    "split_qualified_name",
    "validate",
]
