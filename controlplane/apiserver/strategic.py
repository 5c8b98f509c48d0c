"""Strategic merge patch: a merge patch that uses the schema to decide which lists are merged (allocator.md 5.7)."""

from collections import deque
from typing import Any

from controlplane.apiserver.fieldsets import OPEN, child_schema
from controlplane.apiserver.go_values import go_text
from controlplane.apiserver.kinds import Plain, Schema
from controlplane.apiserver.status import ApiError, bad_request, go_name
from resourceapi.objects.json_value import canonical

_TYPE = ("apiVersion", "kind")
_DIRECTIVE = "$patch"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"
_RETAIN_KEYS = "$retainKeys"
_GONE = object()  # marks a removed item until the whole patch is done


def strategic_merge(value: Plain, patch: Any, schema: Schema) -> Plain:
    """Return the object after the patch, which cannot change its type. Raises ApiError for an invalid patch."""
    if not isinstance(patch, dict):
        raise bad_request(f"json: cannot unmarshal {go_name(patch)} into Go value of type map[string]interface {{}}")
    merged = _merged(value, patch, schema)
    return merged | {name: value[name] for name in _TYPE if isinstance(merged.get(name), str)}


def shown_patch(patch: Plain, value: Plain) -> str:
    """Return the patch as a refusal shows it: upstream's merge has removed nulls from new values in it."""
    return go_text(_without_new_nulls(patch, value))


def _without_new_nulls(patch: Plain, value: Plain) -> Plain:
    return {name: _shown(item, value.get(name)) for name, item in patch.items()}


def _shown(item: Any, there: Any) -> Any:
    if not isinstance(item, dict):
        return item
    return _without_new_nulls(item, there) if isinstance(there, dict) else _without_nulls(item)


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(item) for name, item in value.items() if item is not None}


def _merged(value: Plain, patch: Plain, schema: Schema) -> Plain:
    patch = dict(patch)
    directive = patch.pop(_DIRECTIVE, None)
    if directive == "replace":
        return {name: _plain(item) for name, item in patch.items() if item is not None}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unrecognized patch strategy: {directive}")
    result = dict(value)
    if _RETAIN_KEYS in patch:
        kept = patch.pop(_RETAIN_KEYS)
        names = {each for each in kept if isinstance(each, str)} if isinstance(kept, list) else set()
        if not isinstance(kept, list) or any(name not in names for name in patch if not name.startswith("$")):
            raise bad_request("$retainKeys directive is malformed")
        result = {name: item for name, item in result.items() if name in names}
    orders = {name.removeprefix(_SET_ORDER): patch.pop(name) for name in list(patch) if name.startswith(_SET_ORDER)}
    for name in list(patch):
        if name.startswith(_DELETE_PRIMITIVES):
            field = name.removeprefix(_DELETE_PRIMITIVES)
            gone = set(map(canonical, _list(patch.pop(name))))
            result[field] = [item for item in _list(result.get(field) or []) if canonical(item) not in gone]
    for name, item in patch.items():
        child = child_schema(schema, name) or OPEN
        strategy = child.get("x-kubernetes-patch-strategy", "").split(",")
        if item is None:
            result.pop(name, None)
        elif isinstance(item, dict) and isinstance(result.get(name, []), list):  # no directive applies there
            result.pop(name, None)
            if _DIRECTIVE not in item:
                result[name] = _plain(item)
        elif isinstance(item, dict) and "replace" in strategy:
            result[name] = _plain(item)
        elif isinstance(item, dict):
            before = result.get(name)
            result[name] = _merged(before if isinstance(before, dict) else {}, item, child)
        elif isinstance(item, list) and "merge" in strategy and name not in result:
            result[name] = [_plain(each) for each in item if not (isinstance(each, dict) and _DIRECTIVE in each)]
        elif isinstance(item, list) and "merge" in strategy:
            before = _list(result.get(name) or [])
            _check_alike(before, item)
            key = child.get("x-kubernetes-patch-merge-key")
            result[name] = _ordered(_merged_list(before, item, child), item, before, key)
        elif isinstance(item, list) and item[:1] == [{_DIRECTIVE: "replace"}]:
            result[name] = item[1:]
        else:
            result[name] = item
    for name, order in orders.items():
        child = child_schema(schema, name) or OPEN
        if isinstance(result.get(name), list):
            before, key = value.get(name), child.get("x-kubernetes-patch-merge-key")
            result[name] = _ordered(result[name], _list(order), before if isinstance(before, list) else [], key)
    return result


def _check_alike(*lists: list[Any]) -> None:
    """Check that a list can be merged into another: all items have the same Go type."""
    items = [item for each in lists for item in each]
    if items and any(_go_type(item) != _go_type(items[0]) for item in items):
        raise ApiError(500, f"list element types are not identical: {go_text(list(lists))}")


def _go_type(value: Any) -> type:
    return dict if isinstance(value, dict) else list if isinstance(value, list) else type(value)


def _merged_list(items: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key = schema.get("x-kubernetes-patch-merge-key")
    if key is None:  # scalars: a set
        return list({canonical(item): item for item in (*items, *patch)}.values())
    result: list[Any] = list(items)
    places: dict[bytes, list[int]] = {}
    for at, each in enumerate(items):
        if isinstance(each, dict):
            places.setdefault(canonical(each.get(key)), []).append(at)
    for item in patch:
        if not isinstance(item, dict):
            raise bad_request("the list of a strategic merge patch holds objects here")
        if item == {_DIRECTIVE: "replace"}:
            result, places = [], {}
            continue
        if key not in item:
            raise ApiError(500, f"map: {go_text(item)} does not contain declared merge key: {key}")
        found = places.setdefault(canonical(item[key]), [])
        if item.get(_DIRECTIVE) == "delete":
            for at in found:
                result[at] = _GONE
            found.clear()
        elif found:
            result[found[0]] = _merged(result[found[0]], item, schema.get("items", OPEN))
        else:
            found.append(len(result))
            result.append(_plain(item))
    return [each for each in result if each is not _GONE]


def _ordered(items: list[Any], order: list[Any], before: list[Any], key: str | None) -> list[Any]:
    """The items that an order names, in that order. Others stay before the items that they preceded in `before`.

    As in upstream's normalizeElementOrder, new items come before all that the order does not name.
    """

    def places(some: list[Any]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for place, each in enumerate(some):
            found.setdefault(_name(each, key), place)
        return found

    ranks, was = places(order), places(before)
    named = sorted((each for each in items if _name(each, key) in ranks), key=lambda each: ranks[_name(each, key)])
    others = deque(each for each in items if _name(each, key) not in ranks)
    result = []
    for each in named:
        place = was.get(_name(each, key), 0)
        while others and was.get(_name(others[0], key), place) < place:
            result.append(others.popleft())
        result.append(each)
    return [*result, *others]


def _name(item: Any, key: str | None) -> bytes:
    """The identity of an item of a merged list."""
    return canonical(item.get(key) if key and isinstance(item, dict) else item)


def _plain(value: Any) -> Any:
    """A value of the patch without directives and nulls, for the object."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None and not name.startswith("$")}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request("the value of a list directive must be a list")
    return value
