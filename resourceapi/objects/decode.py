"""Reads objects from bytes or plain values and writes them, in any served version.

The decoded objects are v1 (see `v1`): older versions are converted when they are read and when they are written.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from resourceapi.objects import core, v1, v1beta1
from resourceapi.objects.codec import DecodeError, from_dict, to_dict
from resourceapi.objects.defaults import with_defaults
from resourceapi.objects.meta import KubernetesObject
from resourceapi.objects.strict import parse_members, problems

K = TypeVar("K", bound=KubernetesObject)


class _Served(NamedTuple):
    """A kind in one version: the type of its JSON form, and the conversions to and from the v1 type."""

    form: type[KubernetesObject]
    to_hub: Callable[[Any], KubernetesObject] | None = None
    from_hub: Callable[[Any], KubernetesObject] | None = None


_GROUP = v1.GROUP
_SERVED: dict[tuple[str, str], _Served] = {
    ("v1", "Namespace"): _Served(core.Namespace),
    ("v1", "Node"): _Served(core.Node),
    ("v1", "Pod"): _Served(core.Pod),
    (f"{_GROUP}/v1", "DeviceClass"): _Served(v1.DeviceClass),
    (f"{_GROUP}/v1", "DeviceTaintRule"): _Served(v1.DeviceTaintRule),
    (f"{_GROUP}/v1", "ResourceClaim"): _Served(v1.ResourceClaim),
    (f"{_GROUP}/v1", "ResourceClaimTemplate"): _Served(v1.ResourceClaimTemplate),
    (f"{_GROUP}/v1", "ResourceSlice"): _Served(v1.ResourceSlice),
    (f"{_GROUP}/v1beta2", "DeviceClass"): _Served(v1.DeviceClass),
    (f"{_GROUP}/v1beta2", "DeviceTaintRule"): _Served(v1.DeviceTaintRule),
    (f"{_GROUP}/v1beta2", "ResourceClaim"): _Served(v1.ResourceClaim),
    (f"{_GROUP}/v1beta2", "ResourceClaimTemplate"): _Served(v1.ResourceClaimTemplate),
    (f"{_GROUP}/v1beta2", "ResourceSlice"): _Served(v1.ResourceSlice),
    (f"{_GROUP}/v1beta1", "DeviceClass"): _Served(v1.DeviceClass),
    (f"{_GROUP}/v1beta1", "ResourceClaim"): _Served(v1beta1.ResourceClaim, v1beta1.claim_to_v1, v1beta1.claim_from_v1),
    (f"{_GROUP}/v1beta1", "ResourceClaimTemplate"): _Served(
        v1beta1.ResourceClaimTemplate, v1beta1.template_to_v1, v1beta1.template_from_v1
    ),
    (f"{_GROUP}/v1beta1", "ResourceSlice"): _Served(v1beta1.ResourceSlice, v1beta1.slice_to_v1, v1beta1.slice_from_v1),
    (f"{_GROUP}/v1alpha3", "DeviceTaintRule"): _Served(v1.DeviceTaintRule),
}

KINDS = frozenset(_SERVED)
"""The pairs of apiVersion and kind that can be read and written."""
NAMESPACED = (v1.ResourceClaim, v1.ResourceClaimTemplate, core.Pod)
"""The namespaced kinds."""


class Decoded(NamedTuple):
    """An object, and what strict field validation finds in its JSON form (see `strict`)."""

    object: KubernetesObject
    problems: tuple[str, ...]


def read_object(value: object, *, defaults_at: datetime | None = None) -> KubernetesObject:
    """Return the object for a plain value with `apiVersion` and `kind`.

    With `defaults_at`, the defaults of the object's version are filled in, as of that time. Raises DecodeError.
    """
    served, obj = _read(value)
    return _finished(served, obj, defaults_at)


def read_as(kind: type[K], value: object, *, defaults_at: datetime | None = None) -> K:
    """Like `read_object`, for a known kind; if `apiVersion` and `kind` are both absent, v1 is assumed."""
    if not isinstance(value, dict):
        from_dict(kind, value)  # raises an error that names the wrong type
    elif not value.get("kind") and not value.get("apiVersion"):
        value = value | {"apiVersion": kind.API_VERSION, "kind": kind.KIND}
    obj = read_object(value, defaults_at=defaults_at)
    if not isinstance(obj, kind):
        raise DecodeError(f"expected a {kind.KIND}, got a {obj.KIND}", "kind")
    return obj


def read_with_problems(value: object, *, defaults_at: datetime | None = None) -> Decoded:
    """Like `read_object`, and also return the problems that strict field validation finds in that version."""
    served, obj = _read(value)
    assert isinstance(value, dict), "or it would not have been read"
    return Decoded(_finished(served, obj, defaults_at), problems(obj, value))


def read_objects(value: object, *, defaults_at: datetime | None = None) -> Iterator[KubernetesObject]:
    """Yield the objects in a plain value: the object itself, or the items of a list (`List` or `<Kind>List`)."""
    members = _members(value)
    api_version, kind, items = members["apiVersion"], members["kind"], members.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        yield read_object(value, defaults_at=defaults_at)
        return
    item_type = {"apiVersion": api_version, "kind": kind.removesuffix("List")} if kind != "List" else {}
    for index, item in enumerate(items):
        try:
            yield read_object(item_type | item if isinstance(item, dict) else item, defaults_at=defaults_at)
        except DecodeError as error:
            path = f"items[{index}].{error.path}" if error.path else f"items[{index}]"
            raise DecodeError(error.reason, path) from None


def write_object(obj: KubernetesObject, api_version: str | None = None) -> dict[str, Any]:
    """Return the plain value of an object in `api_version` (default: v1), with `kind` and `apiVersion`.

    Raises DecodeError if the kind is not served in that version.
    """
    version = api_version or obj.API_VERSION
    served = _served(version, obj.KIND)
    form = served.from_hub(obj) if served.from_hub else obj
    return {"kind": obj.KIND, "apiVersion": version} | to_dict(form)


def decode(data: bytes | str, *, defaults_at: datetime | None = None) -> KubernetesObject:
    """Return the object in a JSON text; raises DecodeError, also for invalid JSON."""
    return read_object(parse_json(data), defaults_at=defaults_at)


def decode_with_problems(data: bytes | str, *, defaults_at: datetime | None = None) -> Decoded:
    """Like `decode`, and also return the unknown and the duplicate members."""
    served, obj = _read(parse_json(data))
    return Decoded(_finished(served, obj, defaults_at), problems(obj, parse_members(data)))


def encode(obj: KubernetesObject, api_version: str | None = None) -> bytes:
    """Return the JSON text of an object in `api_version` (default: v1)."""
    return msgspec.json.encode(write_object(obj, api_version))


def parse_json(data: bytes | bytearray | str) -> Any:
    """Return the plain value of a JSON text. Strict: UTF-8, no NaN, limited nesting; raises DecodeError."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise DecodeError("json: exceeded max depth") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DecodeError(f"json: {error}") from None


def _read(value: object) -> tuple[_Served, KubernetesObject]:
    """Return the object in its own version, without defaults."""
    members = _members(value)
    api_version = members.pop("apiVersion")
    served = _served(api_version, members.pop("kind"))
    return served, from_dict(served.form, members, api_version.rpartition("/")[2])


def _finished(served: _Served, obj: KubernetesObject, defaults_at: datetime | None) -> KubernetesObject:
    if defaults_at is not None:
        obj = with_defaults(obj, defaults_at)
    return served.to_hub(obj) if served.to_hub else obj


def _members(value: object) -> dict[str, Any]:
    """Return a copy of an object's members; raises DecodeError if `apiVersion` or `kind` is missing."""
    if not isinstance(value, dict):
        raise DecodeError("an object with apiVersion and kind is needed")
    for name, shown in (("apiVersion", "apiVersion"), ("kind", "Kind")):
        if not isinstance(value.get(name), str) or not value[name]:
            raise DecodeError(f"Object '{shown}' is missing", name)
    return dict(value)


def _served(api_version: str, kind: str) -> _Served:
    served = _SERVED.get((api_version, kind))
    if served is None:
        raise DecodeError(f'no kind "{kind}" is registered for version "{api_version}"', "kind")
    return served
