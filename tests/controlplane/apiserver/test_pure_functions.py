"""Pure functions: field sets, comparison, merging, schemas, ages, versions."""

from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.apiserver.auxiliary import auxiliary_kinds
from controlplane.apiserver.columns import age_text
from controlplane.apiserver.compare import compare
from controlplane.apiserver.definitions.pruning import check_items, prune, with_defaults, without_nulls
from controlplane.apiserver.definitions.schema_validation import check
from controlplane.apiserver.definitions.string_formats import is_formatted
from controlplane.apiserver.fieldsets import NotInSchema, field_set, from_fields_v1, shown, to_fields_v1
from controlplane.apiserver.history import Expired
from controlplane.apiserver.kinds import version_rank
from controlplane.apiserver.patch import merge_patch
from controlplane.apiserver.store import Store
from controlplane.apiserver.strategic import strategic_merge
from controlplane.apiserver.tables import table
from controlplane.apiserver.typed_values import check_types
from resourceapi.objects import ErrorList
from resourceapi.objects.release import LATEST

SCHEMA = {
    "type": "object",
    "properties": {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "names": {
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "plain": {"type": "array", "items": {"type": "string"}},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "id",
            "items": {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}},
        },
    },
}
FULL: dict[str, Any] = {"labels": {"a": "1"}, "names": ["x"], "plain": ["p"], "items": [{"id": "1", "n": 1}]}


def test_field_set_contains_leaves_map_entries_and_list_items() -> None:
    """Leaves, map entries, list items by key and by value; lists without keys as a whole."""
    item: dict[str, Any] = {".": {}, "f:id": {}, "f:n": {}}
    assert to_fields_v1(field_set(FULL, SCHEMA)) == {
        "f:labels": {"f:a": {}},
        "f:names": {'v:"x"': {}},
        "f:plain": {},
        "f:items": {'k:{"id":"1"}': item},
    }
    with pytest.raises(NotInSchema, match=r"\.nope: field not declared in schema"):
        check_types({"nope": 1}, SCHEMA)


def test_field_set_round_trips_through_fields_v1() -> None:
    """This includes sets that own both a field and its parent."""
    fields = field_set(FULL, SCHEMA) | {("f:labels",)}
    assert from_fields_v1(to_fields_v1(fields)) == fields
    assert to_fields_v1(fields)["f:labels"] == {".": {}, "f:a": {}}
    broken: list[Any] = [{"x": {}}, [], {"f:a": 1}]
    for wrong in broken:
        with pytest.raises(ValueError, match=r"field|colon"):
            from_fields_v1(wrong)


def test_field_path_is_shown_as_in_conflicts() -> None:
    """Members, items by key and by value."""
    assert shown(("f:spec", "f:a")) == ".spec.a"
    assert shown(("f:items", 'k:{"id":"1","n":2}', "f:n")) == '.items[id="1",n=2].n'
    assert shown(("f:names", 'v:"x"')) == '.names[="x"]'


def test_compare_reports_added_removed_and_modified_fields() -> None:
    """Additions and removals include all nested fields; lists without keys as a whole; null is a value."""
    changes = compare(FULL, {"labels": {"b": "1"}, "plain": ["q"], "items": [{"id": "1", "n": 2}]}, SCHEMA)
    assert changes.added == {("f:labels", "f:b")}
    assert changes.removed == {("f:labels", "f:a"), ("f:names",), ("f:names", 'v:"x"')}
    assert changes.modified == {("f:plain",), ("f:items", 'k:{"id":"1"}', "f:n")}
    assert compare({"plain": None}, {"plain": []}, SCHEMA).modified == {("f:plain",)}
    assert compare(FULL, FULL, SCHEMA) == (frozenset(), frozenset(), frozenset())


def test_merge_patch_removes_nulls_merges_objects_and_replaces_rest() -> None:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    assert merge_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None, "e": {"f": None}}, "d": [2]}) == {
        "a": {"c": 2, "e": {}},
        "d": [2],
    }


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ({"items": [{"id": "2"}]}, [{"id": "2"}, {"id": "1", "n": 1}]),
        ({"items": [{"id": "1", "n": 5}]}, [{"id": "1", "n": 5}]),
        ({"items": [{"id": "1", "$patch": "delete"}]}, []),
        ({"items": [{"$patch": "replace"}, {"id": "9"}]}, [{"id": "9"}]),
        (
            {"items": [{"id": "2"}], "$setElementOrder/items": [{"id": "2"}, {"id": "1"}]},
            [{"id": "2"}, {"id": "1", "n": 1}],
        ),
    ],
)
def test_strategic_merge_follows_directives_of_keyed_lists(patch: Any, result: Any) -> None:
    """Directives on lists that are merged by key."""
    assert strategic_merge(FULL, patch, SCHEMA)["items"] == result


def test_pruning_and_defaulting_apply_at_any_depth() -> None:
    """At any depth; fields of an open schema remain."""
    schema = {
        "properties": {
            "a": {"type": "object", "properties": {"b": {"default": 1}}},
            "o": {"x-kubernetes-preserve-unknown-fields": True},
            "l": {"items": {"properties": {"n": {"default": {"x": 1}}}}},
        }
    }
    value, unknown = prune({"a": {"z": 1}, "o": {"z": 1}, "y": 1, "l": [{"q": 1}]}, schema)
    assert (value, unknown) == ({"a": {}, "o": {"z": 1}, "l": [{}]}, ["a.z", "y", "l[0].q"])
    assert with_defaults(value, schema) == {"a": {"b": 1}, "o": {"z": 1}, "l": [{"n": {"x": 1}}]}
    nulls = {"properties": {"a": {"type": "object"}, "b": {"nullable": True}, "c": {"default": 1}}}
    assert without_nulls({"a": None, "b": None, "c": None}, nulls) == {"b": None, "c": None}
    assert with_defaults({"a": None, "b": None, "c": None}, nulls) == {"a": None, "b": None, "c": 1}
    assert prune([{"z": 1}], {"type": "string"}) == ([{}], ["[0].z"])


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, "x", 'a: Invalid value: "string": a in body must be of type integer: "string"'),
        ({"type": "integer"}, True, 'a: Invalid value: "boolean": a in body must be of type integer: "boolean"'),
        ({"maximum": 3}, 4, "a: Invalid value: 4: a in body should be less than or equal to 3"),
        ({"minimum": 3, "exclusiveMinimum": True}, 3, "a: Invalid value: 3: a in body should be greater than 3"),
        ({"minLength": 2}, "x", 'a: Invalid value: "x": a in body should be at least 2 chars long'),
        ({"maxItems": 1}, [1, 2], "a: Too many: 2: must have at most 1 item"),
        ({"x-kubernetes-list-type": "set"}, ["x", "x"], 'a[1]: Duplicate value: "x"'),
        (
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
            [{"k": 1}, {"k": 1}],
            'a[1]: Duplicate value: {"k":1}',
        ),
        (
            {"anyOf": [{"type": "string"}]},
            1,
            '<nil>: Invalid value: "": "a" must validate at least one schema (anyOf)'
            'a: Invalid value: "integer": a in body must be of type string: "integer"',
        ),
        ({"not": {"enum": [1]}}, 1, '<nil>: Invalid value: "": "a" must not validate the schema (not)'),
        ({"x-kubernetes-int-or-string": True}, 1, ""),
        ({"type": "string", "nullable": True}, None, ""),
    ],
)
def test_structural_validation_reports_violated_rule(schema: Any, value: Any, expected: str) -> None:
    """One rule at a time."""
    errors = ErrorList()
    check(errors, {"a": value}, {"properties": {"a": schema}})
    check_items(errors, value, schema, "a")
    assert "".join(map(str, errors)) == expected


def test_age_text_has_format_of_kubectl() -> None:
    """kubectl's format of durations."""
    minute, hour, day = 60, 3600, 86400
    expected = {
        0: "0s",
        75: "75s",
        119: "119s",
        5 * minute + 3: "5m3s",
        8 * minute: "8m",
        47 * minute: "47m",
        5 * hour + 10 * minute: "5h10m",
        36 * hour: "36h",
        3 * day + 4 * hour: "3d4h",
        100 * day: "100d",
        2 * 365 * day + 112 * day: "2y112d",
        9 * 365 * day: "9y",
    }
    assert {seconds: age_text(seconds) for seconds in expected} == expected


def test_age_column_uses_clock_of_server() -> None:
    now = datetime(2101, 1, 1, 0, 3, tzinfo=UTC)
    (kind,) = (each for each in auxiliary_kinds(LATEST, lambda: now) if each.kind == "Lease")
    made = {"metadata": {"name": "l", "creationTimestamp": "2101-01-01T00:00:00Z"}}
    (row,) = table(kind, [made], {}, "None", "v1", "v1", now)["rows"]
    assert row["cells"] == ["l", "", "3m"]


def test_versions_are_ordered_by_stability_then_number() -> None:
    """Stable versions first, then the newest of each stage, then all others."""
    versions = ["foo", "v1alpha1", "v1", "v2", "v1beta2", "v2beta1", "v10"]
    assert sorted(versions, key=version_rank) == ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]


def test_history_is_bounded_in_number_and_in_bytes() -> None:
    """A reader that asks for removed history gets an error with the oldest available version."""
    for store, text in ((Store(history=5), "x"), (Store(history_bytes=5000), "x" * 1000)):
        for number in range(30):
            store.put("maps", ("", "one"), {"metadata": {"name": "one"}, "data": {"n": str(number), "text": text}})
        with pytest.raises(Expired) as expired:
            store.events_after("maps", 1)
        kept = store.events_after("maps", expired.value.oldest)
        assert 0 < len(kept) <= 10
        assert kept[-1].last["data"]["n"] == "29"
        assert [event.version for event in kept] == list(range(kept[0].version, store.version + 1))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ipv4", ("1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"), ("", "1.2.3", "::1", "1.2.3.256")),
        ("ipv6", ("::1", "fe80::"), ("1.2.3.4", "fe80::1%eth0", "::g")),
        ("cidr", ("1.2.3.4/8", "::/0"), ("1.2.3.4", "1.2.3.4/33", "::/129", "1.2.3.4/")),
        ("mac", ("aa:bb:cc:dd:ee:ff", "AA-BB-CC-DD-EE-FF", "aabb.ccdd.eeff"), ("aa:bb", "aa:bb-cc:dd:ee:ff")),
        ("hostname", ("a.com", "a-", "é.com"), ("", "a.b", "a_b", "-a")),
        ("uuid4", ("6ba7b810-9dad-41d1-80b4-00c04fd430c8",), ("6ba7b810-9dad-11d1-80b4-00c04fd430c8",)),
        ("duration", ("1h2m", "5 minutes", "3d"), ("", "1", "x")),
        ("date", ("2020-02-29",), ("2021-02-29", "2020-2-1")),
        ("date-time", ("2020-01-02T03:04:05Z", "2020-01-02t03:04:05.1+01:00"), ("2020-01-02", "2020-01-02T03:04:05")),
        ("k8s-short-name", ("a-b",), ("A", "a.b")),
        ("k8s-long-name", ("a.b",), ("A", "-a")),
        ("email", ("a@b", "X <a@b.c>"), ("a", "a b@c")),
        ("unknown", ("anything",), ()),
    ],
)
def test_string_formats_accept_same_texts_as_reference(name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    """As accepted by a real API server (1.37.1)."""
    assert [text for text in (*good, *bad) if is_formatted(text, name)] == list(good)
