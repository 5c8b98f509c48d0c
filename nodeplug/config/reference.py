"""What is generated from the types of schema.py: the JSON Schema and the tables of the reference.

`python -m nodeplug.config.reference docs/configuration.md` writes the tables after the mark in that file.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as mi
from msgspec import NODEFAULT, UNSET, Struct

from hostdevices.attributes import ATTRIBUTES, STANDARD
from nodeplug.config.schema import (
    AccessEntry,
    BindEntry,
    CapacityEntry,
    DraEntry,
    File,
    GroupEntry,
    InterfaceEntry,
    MountEntry,
    MpsEntry,
    PartitionEntry,
    PathEntry,
    ResourceEntry,
    Select,
    SharesEntry,
)
from nodeplug.config.settings import Settings
from resources.presets import PRESETS

_SECTIONS: tuple[tuple[str, type[Struct]], ...] = (
    ("The file", File),
    ("resources", ResourceEntry),
    ("select", Select),
    ("sharesOf", SharesEntry),
    ("group", GroupEntry),
    ("group.paths", PathEntry),
    ("mounts", MountEntry),
    ("mps", MpsEntry),
    ("access", AccessEntry),
    ("dra", DraEntry),
    ("dra.capacity", CapacityEntry),
    ("dra.partitions", PartitionEntry),
    ("dra.interface", InterfaceEntry),
    ("dra.bind", BindEntry),
    ("settings", Settings),
)


MARK = "<!-- What follows is generated: python -m nodeplug.config.reference docs/configuration.md -->\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of configuration files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nodeplug configuration",
        **msgspec.json.schema(File),
    }


def with_reference(text: str) -> str:
    """Return a document with the tables after its mark: every key of the file, the presets, the attributes."""
    before, mark, _ = text.partition(MARK)
    return f"{before}{mark}\n" + "\n".join([*_keys(), *_presets(), *_attributes()]) + "\n"


def _keys() -> Iterator[str]:
    for title, struct in _SECTIONS:
        yield f"### {title}\n"
        yield f"{inspect.cleandoc(struct.__doc__ or '')}\n"
        yield "| key | value | default | meaning |"
        yield "|---|---|---|---|"
        info = mi.type_info(struct)
        assert isinstance(info, mi.StructType)
        for field in info.fields:
            assert isinstance(field.type, mi.Metadata)
            help_text = (field.type.extra_json_schema or {}).get("description", "")
            yield f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} | {_cell(help_text)} |"
        yield ""


def _presets() -> Iterator[str]:
    yield "### Presets\n"
    yield "| preset | devices |"
    yield "|---|---|"
    for name, entry in sorted(PRESETS.items()):
        yield f"| `{name}` | {_cell(entry.help)} |"
    yield ""


def _attributes() -> Iterator[str]:
    yield "### Attributes\n"
    yield "`nodeplug discover` shows which of them a device has.\n"
    yield "| type | attributes |"
    yield "|---|---|"
    short = {full: name for name, full in STANDARD.items()}
    for type_ in dict.fromkeys(ATTRIBUTES.values()):
        names = sorted(short.get(name, name) for name, attribute_type in ATTRIBUTES.items() if attribute_type == type_)
        yield f"| {type_} | {', '.join(f'`{name}`' for name in names)} |"
    full_names = ", ".join(f"`{full}`" for full in STANDARD.values())
    yield f"\n`numaNode`, `pciBusID` and `pcieRoot` are short for {full_names}."


def _type(wanted: mi.Type) -> str:
    match wanted:
        case mi.Metadata():
            return _type(wanted.type)
        case mi.UnionType():
            return " or ".join(dict.fromkeys(map(_type, wanted.types)))
        case mi.VarTupleType():
            return f"list of {_type(wanted.item_type)}"
        case mi.DictType():
            return f"mapping to {_type(wanted.value_type)}"
        case mi.LiteralType():
            return ", ".join(f"`{value}`" for value in wanted.values)
        case mi.IntType():
            low = "" if wanted.ge is None else f" from {wanted.ge}"
            return f"number{low}" if wanted.le is None else f"number{low} to {wanted.le}"
        case mi.BoolType():
            return "true or false"
        case mi.StructType():
            name = next(title for title, struct in _SECTIONS if struct is wanted.cls)
            return f"[{name}](#{name.replace('.', '').replace(' ', '-').lower()})"
        case _:
            return "text"


def _default(field: mi.Field) -> str:
    if field.required:
        return "required"
    if field.default in (NODEFAULT, UNSET, "", ()) or isinstance(field.default, Struct):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_reference(document.read_text()))
