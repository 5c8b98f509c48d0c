"""Runners for `cel/`: expressions, device selectors, and random device selectors."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Any

from resourceapi.cel import (
    CelCompileError,
    CelEvalError,
    DeviceView,
    base_environment,
    compile_expression,
    compile_selector,
    device_environment,
)
from resourceapi.cel.ast import MapExpr, walk
from resourceapi.cel.errors import Issues
from resourceapi.objects import from_dict
from resourceapi.objects.v1 import DeviceAttribute, DeviceCapacity
from tests.cases.cel_values import NotAValueError, as_text, as_value
from tests.cases.documents import Document
from tests.cases.results import Case, Format, Mismatch, Skipped, expect_equal
from tests.cases.unparse import parse_as_written, unparse

_VERSION = "v0.37.2"
_SYNTAX_ERROR = re.compile(r"ERROR: <input>:(-?\d+:\d+): Syntax error")

# --- expressions


def _is_expressions(document: Document) -> bool:
    return document.has_cases_with("name", "expr")


def _expressions(document: Document) -> Iterator[Case]:
    # A few expressions are recorded twice under one name, once with the answer to another expression.
    recorded: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in document.cases:
        recorded.setdefault((entry["name"], entry["expr"]), []).append(entry)
    for entry in document.cases:
        same_expression = recorded[entry["name"], entry["expr"]]
        yield Case(entry["name"], partial(_run_expression, entry["expr"], same_expression))


def _run_expression(source: str, recorded: list[dict[str, Any]]) -> None:
    answers = [{key: value for key, value in entry.items() if key not in ("name", "expr")} for entry in recorded]
    actual = evaluate(source)
    if any(agrees(expected, actual) for expected in answers):
        return
    # The reference visits maps in random order, which affects the cost if a loop ends early.
    if any(agrees(expected, other) for expected in answers for other in map(evaluate, _reordered(source))):
        return
    expect_equal(answers[0], actual)


def agrees(expected: dict[str, Any], actual: dict[str, Any]) -> bool:
    """Return whether two answers to an expression agree."""
    if "Syntax error" in expected.get("compileError", "") and _is_syntax_error(expected, actual):
        return True
    _sort_entries(expected)
    _sort_entries(actual)
    try:
        expect_equal(expected, actual)
    except Mismatch:
        return False
    return True


def _reordered(source: str) -> Iterator[str]:
    """The expression with the entries of its first map in every order."""
    tree = parse_as_written(source, base_environment().macros, Issues(source))
    first = next((node for node in walk(tree.root) if isinstance(node, MapExpr)), None)
    if first is None or not 2 <= len(first.entries) <= 5:
        return
    for entries in permutations(first.entries):
        first.entries = list(entries)
        yield unparse(tree)


def evaluate(source: str) -> dict[str, Any]:
    """Our answer to an expression in the recorded form."""
    try:
        expression = compile_expression(source, base_environment())
    except CelCompileError as error:
        if error.output_type is not None:
            return {"compileError": str(error), "type": error.output_type}
        return {"compileError": str(error).removeprefix("compilation failed: ")}
    answer: dict[str, Any] = {"type": expression.output_type}
    try:
        value, cost = expression.evaluate()
    except CelEvalError as failure:
        return answer | {"evalError": str(failure), "cost": failure.cost}
    try:
        answer["value"] = as_value(value)
    except NotAValueError:
        answer["text"] = as_text(value)
    return answer | {"cost": cost}


def _is_syntax_error(expected: dict[str, Any], actual: dict[str, Any]) -> bool:
    """The texts of syntax errors may differ, except for these words and the position of the first error."""
    wanted = _SYNTAX_ERROR.search(expected["compileError"])
    found = _SYNTAX_ERROR.search(actual.get("compileError", ""))
    return wanted is not None and found is not None and wanted[1] == found[1]


def _sort_entries(value: Any) -> None:
    """Sort the entries of maps, which have no order."""
    if isinstance(value, dict):
        if isinstance(value.get("entries"), list):
            value["entries"].sort(key=repr)
        for each in value.values():
            _sort_entries(each)
    elif isinstance(value, list):
        for each in value:
            _sort_entries(each)


# --- device selectors


def _is_selectors(document: Document) -> bool:
    return document.has_cases_with("kind", "expression", "runs")


def _selectors(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry.get("id", entry["name"]), partial(_run_selector, entry))


def _run_selector(entry: dict[str, Any]) -> None:
    if entry["kind"] != "selector":
        raise Skipped("derived attributes are alpha in 1.37")
    if _VERSION not in entry["versions"]:
        raise Skipped(f"not a case of {_VERSION}")
    for run in entry["runs"]:
        for configuration in run["configurations"]:
            actual = match(entry["expression"], _device(entry), configuration, entry.get("context"))
            if run["actual"] is not None:
                compare_selector(run["actual"], actual)
            if run["expect"] is not None and _VERSION in run["assertedBy"]:
                _check_expectation(run["expect"], actual)


def compare_selector(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    """Raise Mismatch if two answers of a device selector differ."""
    if "Syntax error" in (expected["compileError"] or ""):
        expected = expected | {"compileError": None}
        if "Syntax error" not in (actual["compileError"] or ""):
            raise Mismatch(f"expected a syntax error, got {actual['compileError']}")
        actual = actual | {"compileError": None}
    expect_equal(expected, actual)


def _check_expectation(expect: dict[str, Any], actual: dict[str, Any]) -> None:
    for key in ("compileError", "matchError"):
        text = actual[key]
        if (expect[key] is None) != (text is None) or (expect[key] or "") not in (text or ""):
            raise Mismatch(f"{key}: expected {expect[key]!r}, got {text!r}")
    for key in ("match", "maxCost"):
        if expect[key] is not None and expect[key] != actual[key]:
            raise Mismatch(f"{key}: expected {expect[key]!r}, got {actual[key]!r}")
    if actual["actualCost"] is not None and actual["matchError"] is None and actual["actualCost"] > actual["maxCost"]:
        raise Mismatch(f"cost {actual['actualCost']} is above its estimate {actual['maxCost']}")


def _device(entry: dict[str, Any]) -> dict[str, Any]:
    generated = entry.get("generatedAttributes")
    if generated is None:
        device: dict[str, Any] = entry["device"]
        return device
    attributes = {generated["name"].format(i=i): {"int": i} for i in range(generated["count"])}
    return {"driver": "dra.example.com", "attributes": attributes, "capacity": {}, **(entry.get("device") or {})} | {
        "attributes": attributes
    }


_CAUSES = {"cancelled before the call": "context canceled"}


def match(
    source: str, device: dict[str, Any], configuration: dict[str, Any], context: str | None = None
) -> dict[str, Any]:
    """Our answer of a device selector in the recorded form."""
    environment = device_environment(
        stored=configuration["envType"] == "StoredExpressions",
        consumable_capacity=configuration["enableConsumableCapacity"],
        list_type_attributes=configuration["enableListTypeAttributes"],
    )
    answer: dict[str, Any] = dict.fromkeys(
        ("compileError", "outputType", "maxCost", "match", "matchError", "actualCost")
    )
    try:
        selector = compile_selector(source, environment)
    except CelCompileError as error:
        return answer | {"compileError": str(error)}
    answer |= {"outputType": selector.output_type, "maxCost": selector.max_cost}
    cause = None if context is None else _CAUSES.get(context, "context deadline exceeded")
    try:
        view = _view(device)
    except CelEvalError as failure:
        return answer | {"matchError": str(failure)}  # without an evaluation there is no cost
    try:
        matched, cost = selector.evaluate_device(view, interrupt=None if cause is None else lambda: cause)
    except CelEvalError as failure:
        return answer | {"matchError": str(failure), "actualCost": failure.cost}
    return answer | {"match": matched, "actualCost": cost}


def _view(device: dict[str, Any]) -> DeviceView:
    return DeviceView(
        device["driver"],
        {name: from_dict(DeviceAttribute, each) for name, each in device["attributes"].items()},
        {name: from_dict(DeviceCapacity, each) for name, each in device["capacity"].items()},
        device.get("allowMultipleAllocations"),
    )


# --- random device selectors


def _is_random_selectors(document: Document) -> bool:
    return document.has_cases_with("expression", "device", "stored", "new")


def _random_selectors(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry["name"], partial(_run_random_selector, entry))


def _run_random_selector(entry: dict[str, Any]) -> None:
    new = entry["stored"] if entry["new"] == "same" else entry["new"]
    for kind, expected in (("StoredExpressions", entry["stored"]), ("NewExpressions", new)):
        configuration = {"envType": kind, "enableConsumableCapacity": False, "enableListTypeAttributes": False}
        compare_selector(expected, match(entry["expression"], entry["device"], configuration))


FORMATS = [
    Format("CEL device selectors", _is_selectors, _selectors),
    Format("random CEL device selectors", _is_random_selectors, _random_selectors),
    Format("CEL expressions", _is_expressions, _expressions),
]
