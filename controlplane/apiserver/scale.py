"""The scale of custom resources: how many there are to be, read and written at the paths that a definition names.

Source: k8s.io/api autoscaling/v1 Scale; kubernetes.io "Scale subresource" of custom resources.
"""

from typing import Any

from controlplane.apiserver.columns import AGE, at
from controlplane.apiserver.kinds import Column, Kind, Plain, ScalePaths
from controlplane.apiserver.open_kinds import open_kind
from controlplane.apiserver.status import bad_request, internal
from resourceapi.objects import DecodeError, ErrorList, ObjectMeta, from_dict

API_VERSION = "autoscaling/v1"
_COLUMNS = (
    Column("Desired", lambda obj: at("spec", "replicas")(obj) or 0, "integer"),
    Column("Available", lambda obj: at("status", "replicas")(obj) or 0, "integer"),
    AGE,
)
SCALE: Kind = open_kind(
    "Scale",
    "scales",
    "How many there are to be, and how many there are.",
    _COLUMNS,
    group="autoscaling",
)
"""Of a definition's kinds; it has no objects of its own."""


def scale_of(obj: Plain, paths: ScalePaths) -> Plain:
    """The scale of an object. Raises ApiError 500 where the object does not say how many there are to be."""
    wanted = _found(obj, paths.spec)
    if not isinstance(wanted, int):
        raise internal(f'the spec replicas field "{paths.spec}" does not exist')
    status: Plain = {"replicas": _found(obj, paths.status) or 0}
    if paths.selector and (selector := _found(obj, paths.selector)):
        status["selector"] = selector if isinstance(selector, str) else _selector_text(selector)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {name: obj["metadata"][name] for name in kept if name in obj["metadata"]}
    spec = {"replicas": wanted} if wanted else {}
    return {"kind": "Scale", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}


def check_scale_type(scale: Plain) -> None:
    """That a body is of the type. Raises ApiError 400, in a real server's words."""
    try:
        from_dict(ObjectMeta, scale.get("metadata") or {})
    except DecodeError:
        pass
    else:
        if isinstance(scale.get("spec") or {}, dict):
            return
    raise bad_request('no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"')


def scaled(obj: Plain, scale: Plain, paths: ScalePaths) -> Plain:
    """The object as its new scale wants it."""
    count = (scale.get("spec") or {}).get("replicas") or 0
    version = (scale.get("metadata") or {}).get("resourceVersion") or obj["metadata"]["resourceVersion"]
    changed = _with(obj, paths.spec.lstrip(".").split("."), count)
    return {**changed, "metadata": {**obj["metadata"], "resourceVersion": version}}


def check_scale(errors: ErrorList, obj: Plain, paths: ScalePaths) -> None:
    """That an object wants and has no less than none."""
    for path in (paths.spec, paths.status):
        count = _found(obj, path)
        if isinstance(count, int) and count < 0:
            errors.invalid(path, count, "should be a non-negative integer")


def _found(obj: Plain, path: str) -> Any:
    return at(*path.lstrip(".").split("."))(obj) if path else None


def _selector_text(selector: Plain) -> str:
    """A label selector, or the labels of a ReplicationController, as a list is asked for by."""
    is_plain = not selector.keys() & {"matchLabels", "matchExpressions"}
    labels: Plain = selector if is_plain else selector.get("matchLabels") or {}
    found = [f"{name}={value}" for name, value in labels.items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each.get("key"), ",".join(each.get("values") or ())
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        found.append(words.get(each.get("operator"), str(key)))
    return ",".join(sorted(found))


def _with(value: Any, path: list[str], count: int) -> Any:
    if not path:
        return count
    inside = value if isinstance(value, dict) else {}
    return {**inside, path[0]: _with(inside.get(path[0]), path[1:], count)}
