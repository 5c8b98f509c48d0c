"""Names and types of all attributes that readers provide, so that a configuration can be checked without a device."""

from collections.abc import Mapping
from typing import get_args

from hostdevices.readers import BY_KIND
from hostdevices.readers.location import EVERYWHERE, ON_PCI, ON_USB
from hostdevices.readers.reader import AttributeType

STANDARD: Mapping[str, str] = {name: f"resource.kubernetes.io/{name}" for name in ("numaNode", "pciBusID", "pcieRoot")}
"""Attributes whose names Kubernetes defines, by the short name for configurations."""

_TABLES = (EVERYWHERE, ON_PCI, ON_USB, *(reader.attributes for reader in BY_KIND.values()))

ATTRIBUTES: Mapping[str, AttributeType] = {
    name: attribute.type
    for type_ in get_args(AttributeType)
    for table in _TABLES
    for name, attribute in sorted(table.items())
    if attribute.type == type_
}
