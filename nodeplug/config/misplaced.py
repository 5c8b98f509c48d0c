"""Keys at the wrong place in the file: where they belong, which no similarity of names could show."""

from collections.abc import Mapping
from typing import Final

from hostdevices.attributes import ATTRIBUTES, STANDARD
from nodeplug.config.schema import File, ResourceEntry, Select

_SELECTS = ("all", "any", "attributes", "id", "kind", "not", "path", "preset")

MISPLACED: Final[Mapping[type, Mapping[str, str]]] = {
    File: {"config": "as in values for the Helm chart: write the text below it to a file, and use that file"},
    ResourceEntry: {
        **{name: f"it belongs below `select`: `select: {{{name}: ...}}`" for name in _SELECTS},
        "replicas": "did you mean shares?",  # as NVIDIA's plugin has it
    },
    Select: {
        name: f"it is an attribute: `attributes: {{{name}: ...}}`"
        for name in (*ATTRIBUTES, *STANDARD)
        if "/" not in name
    },
}
"""The hint for an unknown key, by the Struct that does not have it."""
