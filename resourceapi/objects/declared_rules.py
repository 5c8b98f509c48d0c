"""The rules that the types of resource.k8s.io declare for their fields, as kube-apiserver enforces them since 1.37.

Each type has a table of fields, which is applied to an object's JSON form in the version of the request, so paths and
shown items are as the client wrote them. The declared rules run after the hand-written rules; a declared error replaces
a hand-written one of the same kind about the same field. In an update, unchanged values are not checked.

Source: changes-1.37 3.2, KEP-5073, the rules that are declared in k8s.io/api 0.37.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from resourceapi.objects import names, v1
from resourceapi.objects.errors import ErrorList, FieldError
from resourceapi.objects.field_rules import MAX_CONFIGS, MAX_DRIVER_NAME, MAX_IDENTIFIER, add_invalid
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.metadata_rules import IMMUTABLE

FINAL = "field cannot be modified once set"
ValueRule = Callable[[ErrorList, str, Any], None]


class _Value(NamedTuple):
    """A text."""

    rules: tuple[ValueRule, ...] = ()
    required: bool = False
    is_pointer: bool = False  # an empty text differs from an absent one


class _Struct(NamedTuple):
    """An object with known fields, in the order of the type. Exactly one of `one_of` must be set, if there are any.

    `is_immutable`: an update cannot change the object. `is_final`: once set, an update can only remove it.
    """

    fields: "Mapping[str, _Node]"
    one_of: tuple[str, ...] = ()
    is_immutable: bool = False
    is_final: bool = False


class _List(NamedTuple):
    """A list. Items must differ in their `keys`, or as a whole with `is_set`.

    In an update, an item is compared with the old item that has the same keys.
    """

    item: "_Node | None" = None
    limit: int | None = None
    keys: tuple[str, ...] = ()
    is_set: bool = False


class _Map(NamedTuple):
    """A map from names to values."""

    item: "_Node | None" = None
    key_rules: tuple[ValueRule, ...] = ()
    required: bool = False


_Node = _Value | _Struct | _List | _Map


def declared_errors(form: Mapping[str, Any], old: Mapping[str, Any] | None) -> ErrorList:
    """Return the declared rules' errors of `form`, an object's JSON in the version of the request; `old`: before it."""
    errors = ErrorList()
    kind, version = str(form.get("kind")), str(form.get("apiVersion")).rpartition("/")[2]
    table = _TABLES.get((kind, version)) or _TABLES.get((kind, ""))
    for name, node in (table or {}).items():
        before = (old or {}).get(name)
        _walk(errors, name, node, form.get(name), before, is_update=old is not None, is_known=old is not None)
    return errors


def replaced(written: ErrorList, declared: ErrorList) -> ErrorList:
    """Return the distinct hand-written errors that no declared error replaces, followed by the declared errors."""
    already_reported = {(error.type, _v1_path(error.path), _is_about_update(error)) for error in declared}
    once = {str(error): error for error in written}.values()
    result = ErrorList(x for x in once if (x.type, x.path, _is_about_update(x)) not in already_reported)
    result.extend(declared)
    return result


def _is_about_update(error: FieldError) -> bool:
    return error.message.endswith((IMMUTABLE, FINAL))


def _v1_path(path: str) -> str:
    """Convert a path to v1, which the hand-written rules use: v1beta1 has requests and devices in other places."""
    path = _V1BETA1_REQUEST_PATH.sub(r"\1.exactly.\2", path)
    return _V1BETA1_DEVICE_PATH.sub(r"\1.", path)


_V1BETA1_REQUEST_PATH = re.compile(r"(devices\.requests\[\d+\])\.(selectors|allocationMode|tolerations)")
_V1BETA1_DEVICE_PATH = re.compile(r"(spec\.devices\[\d+\])\.basic\.")


def _walk(errors: ErrorList, path: str, node: _Node, new: Any, old: Any, *, is_update: bool, is_known: bool) -> None:
    """Apply the rules to one value. `is_known`: `old` is the previous value; otherwise the value is new."""
    if is_update and is_known and json_equal(new, old):
        return
    match node:
        case _Value():
            if not new and not (node.is_pointer and new is not None):
                if node.required:
                    errors.required(path)
                return
            for rule in node.rules:
                rule(errors, path, new)
        case _Struct():
            if node.is_immutable and is_update:
                errors.invalid(path, None, IMMUTABLE)
            elif new is not None and node.is_final and is_update and old is not None:
                errors.invalid(path, None, FINAL)
            elif new is not None:
                _walk_struct(errors, path, node, new, old, is_update=is_update, is_known=is_known)
        case _List():
            _walk_list(errors, path, node, new or [], (old if is_known else None) or [], is_update=is_update)
        case _Map():
            if not new and node.required:
                errors.required(path)
            for key in sorted(new or {}):
                for rule in node.key_rules:
                    rule(errors, path, key)
            if node.item is not None:
                before = (old if is_known else None) or {}
                for key in sorted(new or {}):
                    here, known = f"{path}[{key}]", key in before
                    _walk(errors, here, node.item, new[key], before.get(key), is_update=is_update, is_known=known)


def _walk_struct(
    errors: ErrorList, path: str, node: _Struct, new: Any, old: Any, *, is_update: bool, is_known: bool
) -> None:
    if node.one_of:
        present, before = _set_members(node, new), _set_members(node, old or {})
        if not (is_update and is_known and old is not None and present == before):
            _one_of(errors, path, node.one_of, present)
    for name, member in node.fields.items():
        below, was = new.get(name), (old or {}).get(name)
        known = is_known and old is not None
        _walk(errors, f"{path}.{name}", member, below, was, is_update=is_update, is_known=known)


def _set_members(node: _Struct, value: Mapping[str, Any]) -> list[str]:
    return [name for name in node.one_of if value.get(name) is not None and value.get(name) != []]


def _one_of(errors: ErrorList, path: str, members: tuple[str, ...], present: list[str]) -> None:
    choice = ", ".join(f"`{name}`" for name in members)
    if not present:
        errors.invalid(path, "", f"must specify one of: {choice}")
    elif len(present) > 1:
        errors.invalid(path, f"{{{', '.join(present)}}}", f"must specify exactly one of: {choice}")


def _walk_list(errors: ErrorList, path: str, node: _List, new: Any, old: Any, *, is_update: bool) -> None:
    if node.limit is not None and len(new) > node.limit:
        errors.too_many(path, len(new), node.limit)
        return

    def key(item: Any) -> Any:
        return tuple(item.get(name) for name in node.keys) if node.keys else item

    if node.keys or node.is_set:
        seen = set()
        for index, item in enumerate(new):
            if key(item) in seen:
                errors.duplicate(f"{path}[{index}]", item)
            seen.add(key(item))
    if node.item is None:
        return
    before = {key(item): item for item in old} if node.keys else {}
    for index, item in enumerate(new):
        known = bool(node.keys) and key(item) in before
        was = before[key(item)] if known else None
        _walk(errors, f"{path}[{index}]", node.item, item, was, is_update=is_update, is_known=known)


def _one_of_values(*values: str) -> ValueRule:
    def rule(errors: ErrorList, path: str, value: str) -> None:
        if value not in values:
            errors.not_supported(path, value, sorted(values))

    return rule


def _at_most(limit: int) -> ValueRule:
    def rule(errors: ErrorList, path: str, value: str) -> None:
        if names.size(value) > limit:
            errors.too_long(path, limit)

    return rule


def _short_name(errors: ErrorList, path: str, name: str) -> None:
    add_invalid(errors, path, name, names.dns_label(name, "bytes"))


def _long_name(errors: ErrorList, path: str, name: str) -> None:
    add_invalid(errors, path, name, names.dns_subdomain(name, "bytes"))


def _label_key(errors: ErrorList, path: str, name: str) -> None:
    add_invalid(errors, path, name, names.label_key(name))


def _driver_name(errors: ErrorList, path: str, name: str) -> None:
    add_invalid(errors, path, name, names.dns_subdomain_in_any_case(name))
    if len(name) > MAX_DRIVER_NAME:
        errors.too_long(path, MAX_DRIVER_NAME, "characters")


def _pool_name(errors: ErrorList, path: str, name: str) -> None:
    if names.size(name) > names.MAX_SUBDOMAIN:
        errors.too_long(path, names.MAX_SUBDOMAIN)
    for number, part in enumerate(name.split("/")):
        if not part:
            errors.invalid(path, name, f"segment {number}: must not be empty")
        else:
            found = names.dns_subdomain(part, "bytes")
            add_invalid(errors, path, part, (f"segment {number}: {reason}" for reason in found))


def _uuid(errors: ErrorList, path: str, uid: str) -> None:
    if not _UUID.fullmatch(uid):
        errors.invalid(path, uid, "must be a lowercase UUID in 8-4-4-4-12 format")


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def _fully_qualified_name(errors: ErrorList, path: str, name: str) -> None:
    parts = name.split("/")
    if len(parts) == 2:
        if not parts[0]:
            errors.invalid(path, "", "prefix must not be empty")
        else:
            _at_most(MAX_DRIVER_NAME)(errors, path, parts[0])
            found = names.dns_subdomain(parts[0], "bytes")
            add_invalid(errors, path, parts[0], (f"prefix: {reason}" for reason in found))
        if not parts[1]:
            errors.invalid(path, "", "name must not be empty")
    if (len(parts) <= 2 and parts[-1]) or len(parts) == 1:
        _at_most(MAX_IDENTIFIER)(errors, path, parts[-1])
        add_invalid(errors, path, parts[-1], names.c_identifier(parts[-1]))
    if len(parts) == 1:
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def _extended_resource(errors: ErrorList, path: str, name: str) -> None:
    if "/" not in name:
        errors.invalid(path, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif "kubernetes.io/" in name:
        errors.invalid(path, name, 'must not have "kubernetes.io/" domain')
    if name.startswith(names.REQUESTS_PREFIX):
        errors.invalid(path, name, 'must not have "requests." prefix')
    add_invalid(errors, path, name, names.label_key(names.REQUESTS_PREFIX + name))


_EFFECT = _one_of_values(*v1.TAINT_EFFECTS)
_TOLERATIONS = _List(
    _Struct(
        {
            "key": _Value((_label_key,)),
            "operator": _Value((_one_of_values(v1.EQUAL, v1.EXISTS),), required=True),
            "effect": _Value((_EFFECT,)),
        }
    )
)
_SELECTORS = _List(limit=32)
_MODE = _Value((_one_of_values(v1.ALL, v1.EXACT_COUNT),))
_REFERENCES = _List(limit=32, is_set=True)
_OPAQUE = _Struct({"driver": _Value((_driver_name,), required=True)})
_ALTERNATIVES = _List(
    _Struct(
        {
            "deviceClassName": _Value((_long_name,), required=True),
            "selectors": _SELECTORS,
            "allocationMode": _MODE,
            "tolerations": _TOLERATIONS,
        }
    ),
    limit=8,
    keys=("name",),
)
_REQUEST = _Struct(
    {
        "exactly": _Struct({"selectors": _SELECTORS, "allocationMode": _MODE, "tolerations": _TOLERATIONS}),
        "firstAvailable": _ALTERNATIVES,
    }
)
_V1BETA1_REQUEST = _Struct(
    {
        "selectors": _SELECTORS,
        "allocationMode": _MODE,
        "firstAvailable": _ALTERNATIVES,
        "tolerations": _TOLERATIONS,
    }
)


def _claim(request: _Struct, *, is_immutable: bool) -> _Struct:
    attribute = _Value((_fully_qualified_name,))
    constraint = _Struct({"requests": _REFERENCES, "matchAttribute": attribute, "distinctAttribute": attribute})
    devices = _Struct(
        {
            "requests": _List(request, limit=32, keys=("name",)),
            "constraints": _List(constraint, limit=32),
            "config": _List(_Struct({"requests": _REFERENCES, "opaque": _OPAQUE}), limit=MAX_CONFIGS),
        }
    )
    return _Struct({"devices": devices}, is_immutable=is_immutable)


_CONDITION_NAMES = _List(limit=4)
_RESULT = _Struct(
    {
        "driver": _Value((_driver_name,), required=True),
        "pool": _Value((_pool_name,), required=True),
        "tolerations": _TOLERATIONS,
        "bindingConditions": _CONDITION_NAMES,
        "bindingFailureConditions": _CONDITION_NAMES,
        "shareID": _Value((_uuid,)),
    }
)
_ALLOCATED_CONFIG = _Struct(
    {
        "source": _Value((_one_of_values(v1.FROM_CLAIM, v1.FROM_CLASS),), required=True),
        "requests": _REFERENCES,
        "opaque": _OPAQUE,
    }
)
_ALLOCATION = _Struct(
    {
        "devices": _Struct(
            {"results": _List(_RESULT, limit=32), "config": _List(_ALLOCATED_CONFIG, limit=2 * MAX_CONFIGS)}
        )
    },
    is_final=True,
)
_NETWORK = _Struct(
    {
        "interfaceName": _Value((_at_most(256),)),
        "ips": _List(limit=16, is_set=True),
        "hardwareAddress": _Value((_at_most(128),)),
    }
)
_CLAIM_STATUS = _Struct(
    {
        "allocation": _ALLOCATION,
        "reservedFor": _List(limit=256, keys=("uid",)),
        "devices": _List(
            _Struct({"shareID": _Value((_uuid,)), "networkData": _NETWORK}),
            keys=("driver", "device", "pool", "shareID"),
        ),
    }
)
_TAINT = _Struct({"effect": _Value((_EFFECT,), required=True)})
_COUNTERS = _Map(key_rules=(_short_name,), required=True)
_COUNTER_NAME = _Value((_short_name,), required=True)
_VALUES = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_DEVICE = _Struct(
    {
        "attributes": _Map(_Struct({"strings": _List(_Value((_at_most(64),)))}, one_of=_VALUES)),
        "consumesCounters": _List(
            _Struct({"counterSet": _COUNTER_NAME, "counters": _COUNTERS}), limit=2, keys=("counterSet",)
        ),
        "taints": _List(_TAINT),
        "bindingConditions": _CONDITION_NAMES,
        "bindingFailureConditions": _CONDITION_NAMES,
    }
)


def _slice(device: _Struct) -> _Struct:
    counters = _List(_Struct({"name": _COUNTER_NAME, "counters": _COUNTERS}), limit=8, keys=("name",))
    return _Struct({"devices": _List(device), "sharedCounters": counters})


_CLASS = {
    "metadata": _Struct({"name": _Value((_long_name,))}),
    "spec": _Struct(
        {
            "selectors": _SELECTORS,
            "config": _List(_Struct({"opaque": _OPAQUE}), limit=MAX_CONFIGS),
            "extendedResourceName": _Value((_extended_resource,), is_pointer=True),
        }
    ),
}

_TABLES: Mapping[tuple[str, str], Mapping[str, _Node]] = {
    ("DeviceClass", ""): _CLASS,
    ("DeviceTaintRule", ""): {"spec": _Struct({"taint": _TAINT})},
    ("ResourceClaim", ""): {"spec": _claim(_REQUEST, is_immutable=True), "status": _CLAIM_STATUS},
    ("ResourceClaim", "v1beta1"): {"spec": _claim(_V1BETA1_REQUEST, is_immutable=True), "status": _CLAIM_STATUS},
    ("ResourceClaimTemplate", ""): {"spec": _Struct({"spec": _claim(_REQUEST, is_immutable=False)})},
    ("ResourceClaimTemplate", "v1beta1"): {"spec": _Struct({"spec": _claim(_V1BETA1_REQUEST, is_immutable=False)})},
    ("ResourceSlice", ""): {"spec": _slice(_DEVICE)},
    ("ResourceSlice", "v1beta1"): {"spec": _slice(_Struct({"basic": _DEVICE}))},
}
