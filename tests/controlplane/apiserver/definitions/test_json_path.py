"""JSONPath of columns. The expected results are those of k8s.io/client-go/util/jsonpath."""

from typing import Any

import pytest

from controlplane.apiserver.definitions.custom_kinds import kind_of
from controlplane.apiserver.definitions.json_path import JsonPath, JsonPathError
from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, TABLE, definition, driver
from tests.controlplane.apiserver.running import Http

MANY_TIMES = "[" + ",".join(["'x'"] * 200) + "]"
READY = {"type": "Ready", "status": "True", "n": 1}
OTHER = {"type": "A)", "status": "False", "n": 2}
OBJECT = {
    "labels": {"a.b/c": "v", "plain": "w"},
    "list": [1, 2, 3, 4],
    "items": [READY, OTHER, {"x": {"y": [{"z": 1}, {"z": 2}]}}],
    "none": None,
    "text": "abc",
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".labels.plain", ["w"]),
        (".labels.a\\.b/c", ["v"]),
        (".labels['a\\.b/c']", ["v"]),
        (".labels['a.b/c']", []),  # a path of two fields
        (".labels.*", ["v", "w"]),
        (".none", [None]),
        (".none.x", []),
        (".text.x", []),
        (".list[0]", [1]),
        (".list[-1]", [4]),
        (".list[1:3]", [2, 3]),
        (".list[::2]", [1, 3]),
        (".list[*]", [1, 2, 3, 4]),
        (".list[0,-1]", [1, 4]),
        (".list[2:2]", []),
        ('.items[?(@.type=="Ready")].status', ["True"]),
        (".items[?(@.type=='A)')].n", [2]),
        (".items[?(@.n>1)].type", ["A)"]),
        (".items[?(@.x)].x.y[*].z", [1, 2]),
        (".items[?(@.type=='None')]", []),
        ("..z", [1, 2]),
        ("$.list[0]", [1]),
    ],
)
def test_path_finds_values(path: str, found: list[Any]) -> None:
    assert JsonPath(path).find(OBJECT) == found


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".list[4]", "out of bounds: index 4, length 4"),
        (".labels[0]", "not array or slice"),
        (".labels[?(@.a)]", "can be filtered"),
        (".items[?(@.n=='1')]", "incompatible types"),
        (".items[?(@.n=1)]", "unrecognized filter operator ="),
        (".items[*].x.y[::0]", "step must be > 0"),
    ],
)
def test_path_that_does_not_match_value_types_is_an_error(path: str, words: str) -> None:
    with pytest.raises(JsonPathError, match=words):
        JsonPath(path).find(OBJECT)


@pytest.mark.parametrize(
    "path", [".a[", ".a[x]", ".a[?(@.b]", ".a[?(@.b)x", ".a (", "....", ".a\\", ".a['", ".a[1e9]", "'a"]
)
def test_malformed_path_is_refused(path: str) -> None:
    with pytest.raises(JsonPathError):
        JsonPath(path)


def test_path_with_too_many_results_is_an_error() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"a": deep, "b": deep}
    with pytest.raises(JsonPathError, match="more than"):
        JsonPath(".*" * 40).find(deep)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("[?(@.x[*])]", [{"x": [0] * 1000}] * 200),  # many items with some values each
        (f"[?(@{MANY_TIMES}[:])]", [{"x": [0] * 1000}]),  # an error that ends the filter's path only
        (f"{MANY_TIMES}.*", {"x": "a" * 1000}),
    ],
)
def test_visited_values_of_steps_and_filters_are_limited(path: str, value: Any) -> None:
    with pytest.raises(JsonPathError, match="visits more than"):
        JsonPath(path).find(value)


def test_columns_after_64_kib_of_paths_are_omitted() -> None:
    defined = definition()
    columns = [{"name": name, "type": "string", "jsonPath": ".a" * 16_000} for name in ("one", "two", "three")]
    defined["spec"]["versions"][0]["additionalPrinterColumns"] = columns
    assert [column.name for column in kind_of(defined).columns] == ["one", "two"]


def test_columns_show_conditions_and_labels(api: Http) -> None:
    """Cells have the first result, in the column's type. Columns end before an invalid path."""
    defined = definition()
    paths = {
        "Ready": ("string", '.spec.free.conditions[?(@.type=="Ready")].status'),
        "Zone": ("string", ".metadata.labels.topology\\.kubernetes\\.io/zone"),
        "First": ("string", ".spec.l[*].a"),
        "All": ("string", ".spec.l"),
        "Text": ("integer", ".spec.type"),
        "Since": ("date", ".spec.type"),
        "Day": ("date", ".spec.free.day"),
        "Empty": ("date", ".spec.free.empty"),
        "None": ("string", ".spec.free.none"),
        "Large": ("integer", ".spec.free.large"),
        "Broken": ("string", ".spec.l[x]"),
        "Type": ("string", ".spec.type"),
    }
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, (kind, path) in paths.items()]
    defined["spec"]["versions"][0]["additionalPrinterColumns"] = columns
    api.ok("POST", DEFINITIONS, defined)
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    free = {"conditions": conditions, "none": None, "day": "2026-01-01", "empty": "", "large": 1e300}
    spec = {"type": "nic", "l": [{"a": "<é>"}, {"a": "y"}], "free": free}
    made = driver("a", spec)
    made["metadata"]["labels"] = {"topology.kubernetes.io/zone": "z1"}
    api.ok("POST", DRIVERS, made)
    table = api.ok("GET", DRIVERS, accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", *list(paths)[:-2]]
    all_of_them = '[{"a":"\\u003cé\\u003e"},{"a":"y"}]'
    times = ["<invalid>", "<invalid>", "<unknown>"]
    assert table["rows"][0]["cells"] == ["a", "True", "z1", "<é>", all_of_them, None, *times, "<no value>", -(2**63)]
