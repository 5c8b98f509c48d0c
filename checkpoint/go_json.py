"""Reads a state file of the kubelet as Go's decoder does, if it differs from what the kubelet writes.

Names of fields match in any case, the last of several values counts, and fields that the kubelet does not know are
ignored. `null` empties a list or a map, and leaves any other value as it was. Source: encoding/json (Unmarshal).
"""

from collections.abc import Iterable
from typing import Any

import msgspec.inspect as mi

# Go also folds these two onto ASCII letters: the Kelvin sign and the long s
_FOLDED = str.maketrans({"\u212a": "k", "\u017f": "s"})
_ZEROS: dict[type[mi.Type], Any] = {mi.StrType: "", mi.IntType: 0}


def decoded_by_go(value: object, type_: type) -> Any:
    """Return decoded JSON with the field names of `type_`, without fields that it lacks."""
    return _read(value, mi.type_info(type_))


def _read(value: object, wanted: mi.Type) -> Any:
    options = wanted.types if isinstance(wanted, mi.UnionType) else (wanted,)
    if value is None:
        return _null_value(options)
    for option in options:
        if isinstance(option, mi.StructType) and isinstance(value, dict):
            return _fields(value, option.fields)
        if isinstance(option, mi.DictType) and isinstance(value, dict):
            return {key: _read(item, option.value_type) for key, item in value.items()}
        if isinstance(option, mi.ListType | mi.CollectionType) and isinstance(value, list):
            return [_read(item, option.item_type) for item in value]
    return value


def _fields(value: dict[str, object], fields: Iterable[mi.Field]) -> dict[str, Any]:
    types = {field.encode_name: field.type for field in fields}
    folded = {_fold(name): name for name in types}
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = key if key in types else folded.get(_fold(key))
        if name is None or (item is None and not _may_be_none(types[name])):
            continue
        found[name] = _read(item, types[name])
    return found


def _null_value(options: Iterable[mi.Type]) -> Any:
    """Return the value of `null` in a list or a map: None, or an empty value of its type."""
    kinds = {type(option) for option in options}
    if mi.NoneType in kinds:
        return None
    return next((zero for kind, zero in _ZEROS.items() if kind in kinds), {})


def _may_be_none(wanted: mi.Type) -> bool:
    return isinstance(wanted, mi.UnionType) and wanted.includes_none


def _fold(name: str) -> str:
    return name.translate(_FOLDED).lower()
