"""The Scale of objects: the number of replicas, read and written at the paths that a kind names.

Source: k8s.io/api autoscaling/v1 Scale; kubernetes.io "Scale subresource" of custom resources.
"""

from collections.abc import Mapping
from typing import Any

from controlplane.apiserver.columns import AGE, at
from controlplane.apiserver.fieldsets import Path
from controlplane.apiserver.go_values import go_text, go_type
from controlplane.apiserver.kinds import Column, Kind, Plain, ScalePaths
from controlplane.apiserver.managed import Manager, Managers, Owned
from controlplane.apiserver.status import ApiError, bad_request, internal
from controlplane.apiserver.unstructured_kinds import unstructured_kind
from resourceapi.objects import ErrorList

API_VERSION = "autoscaling/v1"
_COLUMNS = (
    Column("Desired", lambda obj: at("spec", "replicas")(obj) or 0, "integer"),
    Column("Available", lambda obj: at("status", "replicas")(obj) or 0, "integer"),
    AGE._replace(type="date"),
)
SCALE: Kind = unstructured_kind(
    "Scale",
    "scales",
    "How many there are to be, and how many there are.",
    _COLUMNS,
    group="autoscaling",
)
"""The kind Scale. It has no stored objects."""
_MAX = 2**31 - 1
_UNSET = -(2**31)  # as in the reference, for a number that the object does not have
_REPLICAS: Path = ("f:spec", "f:replicas")


def scale_of(obj: Plain, paths: ScalePaths) -> Plain:
    """Return the scale of an object. Raises ApiError 500 if the object has no number of replicas."""
    scale = _scale(obj, paths)
    if scale["spec"].get("replicas") == _UNSET:
        raise internal(f'Internal error occurred: the spec replicas field "{paths.spec}" does not exist')
    return scale


def scale_to_change(obj: Plain, paths: ScalePaths) -> Plain:
    """Return the scale of an object, which might have no number of replicas. Raises ApiError 500."""
    return _scale(obj, paths)


def unregistered_error() -> ApiError:
    """Return the error 400 for a body that is not a Scale, with a real server's text."""
    return bad_request('no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"')


def apply_unsupported_error() -> ApiError:
    """Return the error 500 for applying a custom resource's scale, which a real server cannot do."""
    why = "failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version"
    text = f"failed to create manager for existing fields: {why}: request to convert CR to an invalid group/version"
    return internal(f"{text}: {API_VERSION}")


def scaled(obj: Plain, scale: Plain, paths: ScalePaths) -> Plain:
    """Return the object with the replicas of its new scale. Raises ApiError 400 if the scale has none."""
    count = (scale.get("spec") or {}).get("replicas") or 0
    if count == _UNSET:
        raise bad_request(f'the spec replicas field "{paths.spec}" cannot be empty')
    version = scale["metadata"].get("resourceVersion") or obj["metadata"]["resourceVersion"]
    changed = _with(obj, _steps(paths.spec), count)
    return {**changed, "metadata": {**obj["metadata"], "resourceVersion": version}}


def managers_of_scale(managers: Managers, paths: Mapping[str, ScalePaths | None]) -> dict[Manager, Owned]:
    """Return the managers of an object's replicas as managers of its scale; `paths` are those of each version."""
    found = {}
    for manager, owned in managers.items():
        path = _path(paths.get(owned.api_version))
        if path is not None and path in owned.fields:
            found[_in_scale(manager)] = Owned(frozenset((_REPLICAS,)), owned.time, API_VERSION)
    return found


def managers_of_object(
    before: Managers, of_scale: Managers, paths: Mapping[str, ScalePaths | None], api_version: str
) -> dict[Manager, Owned]:
    """Return the managers of an object after those of its scale changed; `before` are the object's former managers."""
    left, found = dict(of_scale), {}
    for manager, owned in before.items():
        if owned.api_version not in paths:
            continue
        path = _path(paths[owned.api_version])
        if path is not None and path in owned.fields and left.pop(_in_scale(manager), None) is None:
            owned = owned._replace(fields=owned.fields - {path})
        if owned.fields:
            found[manager] = owned
    path = _path(paths[api_version])
    assert path is not None, "this version has a scale"
    for manager, owned in left.items():
        if _REPLICAS in owned.fields:
            version = api_version if manager.operation == "Update" else ""
            # as a real server does, without a time
            found[manager._replace(api_version=version)] = Owned(frozenset((path,)), "", api_version)
    return found


def check_scale(errors: ErrorList, obj: Plain, paths: ScalePaths) -> None:
    """Check that the desired and actual replicas are numbers, and that the selector is a text."""
    for path in (paths.spec, paths.status):
        try:
            count = _nested(obj, path, int) or 0
        except ValueError as error:
            errors.invalid(path, 0, str(error))
            continue
        if count < 0:
            errors.invalid(path, count, "should be a non-negative integer")
        elif count > _MAX:
            errors.invalid(path, count, f"should be less than or equal to {_MAX}")
    if paths.selector:
        try:
            _nested(obj, paths.selector, str)
        except ValueError as error:
            errors.invalid(paths.selector, "", str(error))


def _scale(obj: Plain, paths: ScalePaths) -> Plain:
    try:
        wanted, there = _nested(obj, paths.spec, int), _nested(obj, paths.status, int)
        selector = _selector(obj, paths.selector)
    except ValueError as error:
        raise internal(str(error)) from None
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {name: obj["metadata"][name] for name in kept if name in obj["metadata"]}
    count = _UNSET if wanted is None else wanted
    spec = {"replicas": count} if count else {}
    status: Plain = {"replicas": there or 0} | ({"selector": selector} if selector else {})
    return {"kind": "Scale", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}


def _nested(obj: Plain, path: str, kind: type) -> Any:
    """The number or text at a path; None if it is missing. Raises ValueError with Go's message for any other value."""
    value: Any = obj
    steps = _steps(path)
    for index, step in enumerate(steps):
        if value is None:
            return None
        if not isinstance(value, dict):
            where = ".".join(steps[: index + 1])
            raise ValueError(_type_fault(value, where, "map[string]interface{}"))
        if step not in value:
            return None
        value = value[step]
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(_type_fault(value, ".".join(steps), "int64" if kind is int else "string"))
    return value


def _type_fault(value: Any, where: str, wanted: str) -> str:
    return f".{where} accessor error: {go_text(value)} is of the type {go_type(value)}, expected {wanted}"


def _selector(obj: Plain, path: str) -> str:
    """The selector of the pods as text. A built-in kind has a selector object or labels at the path."""
    found = at(*_steps(path))(obj) if path else None
    if not isinstance(found, dict):
        return (_nested(obj, path, str) or "") if path else ""
    is_plain = not found.keys() & {"matchLabels", "matchExpressions"}
    labels: Plain = found if is_plain else found.get("matchLabels") or {}
    pieces = [f"{name}={value}" for name, value in labels.items()]
    for each in found.get("matchExpressions") or ():
        key, values = each.get("key"), ",".join(each.get("values") or ())
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        pieces.append(words.get(each.get("operator"), str(key)))
    return ",".join(sorted(pieces))


def _steps(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def _path(paths: ScalePaths | None) -> Path | None:
    return tuple(f"f:{step}" for step in _steps(paths.spec)) if paths else None


def _in_scale(manager: Manager) -> Manager:
    return manager._replace(api_version=API_VERSION) if manager.operation == "Update" else manager


def _with(value: Any, path: list[str], count: int) -> Any:
    if not path:
        return count
    inside = value if isinstance(value, dict) else {}
    return {**inside, path[0]: _with(inside.get(path[0]), path[1:], count)}
