"""The names and types of all attributes that readers give, so that a configuration can be checked without a device.

What they mean stands with the readers (readers/__init__.py); tests hold the two together.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

AttributeType: TypeAlias = Literal["text", "hexadecimal", "integer", "boolean", "version"]

STANDARD: Mapping[str, str] = {name: f"resource.kubernetes.io/{name}" for name in ("numaNode", "pciBusID", "pcieRoot")}
"""Attributes that Kubernetes has named, by the short name under which a configuration may speak of them."""

_NAMES: Mapping[AttributeType, str] = {
    "text": """
        boardID bus card computePartition devType driver firmwareRevision gfx hcaType
        interfaceClasses label linkLayer linkType mac manufacturer master memoryPartition mode model name netdev
        nodeGUID nodeType operstate parentUUID path pf pfName phys physPort physState physSwitch port rate serial
        services sriov state subsystem sysImageGUID transport type unique uuid wwid
    """,
    "hexadecimal": "class device product revision subsystemDevice subsystemVendor vendor",
    "integer": """
        computeInstance devPort functions gpuInstance index interface iommuGroup memory memoryNode module mtu numVFs
        partition ports priority size speed totalVFs version vfIndex
    """,
    "boolean": """
        capture carrier console iommufd noiommu partitioned playback readOnly removable render uplink viable virtual
    """,
    "version": "driverVersion firmware",
}

ATTRIBUTES: Mapping[str, AttributeType] = {
    **{name: type_ for type_, names in _NAMES.items() for name in names.split()},
    STANDARD["numaNode"]: "integer",
    STANDARD["pciBusID"]: "text",
    STANDARD["pcieRoot"]: "text",
}
