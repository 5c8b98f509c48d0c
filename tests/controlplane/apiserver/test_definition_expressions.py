"""x-kubernetes-validations, as real API servers (1.34.4, 1.36.3, 1.37.1) answered."""

from collections.abc import Iterator
from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import MERGE, Http, Running
from tests.controlplane.apiserver.test_definitions import DEFINITIONS, DRIVERS, definition, driver

SPEC: dict[str, Any] = {
    "type": "object",
    "x-kubernetes-validations": [
        {"rule": "!has(self.a) || self.a > 1", "messageExpression": "'a is small'"},
        {
            "rule": "!has(self.b) || self.b == oldSelf.b",
            "message": "b is immutable",
            "fieldPath": ".b",
            "reason": "FieldValueForbidden",
        },
        {"rule": "!has(self.d) || self.d < timestamp('2030-01-01T00:00:00Z')"},
        {"rule": "!has(self.f) || self.f * 2.0 < 10.0", "message": "f"},
        {"rule": "!has(self.__in__) || self.__in__"},
        {"rule": "!has(self.m) || self.m['k'] == 'v'"},
        {"rule": "self.l.all(x, x.name != '')"},
    ],
    "properties": {
        "a": {"type": "integer", "maximum": 100},
        "b": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x'"}]},
        "d": {"type": "string", "format": "date-time"},
        "f": {"type": "number"},
        "in": {"type": "boolean"},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "l": {
            "type": "array",
            "maxItems": 2,
            "default": [],
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "x-kubernetes-validations": [{"rule": "self.name != 'no'", "message": "  no no "}],
            },
        },
    },
}
NOT_CHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the"
    " existing errors to complete validation"
)


def with_rules(spec: dict[str, Any]) -> dict[str, Any]:
    """The definition with another spec, and a rule for names."""
    made = definition()
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name != 'bad'", "message": "bad name"}],
        "properties": {"spec": spec},
    }
    return made


@pytest.fixture(scope="module")
def ruled() -> Iterator[Http]:
    with Running() as running, running.http() as http:
        http.ok("POST", DEFINITIONS, with_rules(SPEC))
        yield http


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"a": 2, "d": "2021-01-01T00:00:00Z", "f": 4.5, "in": True, "m": {"k": "v"}}, ()),
        ({"a": 1}, ("spec: Invalid value: a is small",)),
        ({"d": "2031-01-01T00:00:00Z"}, ("failed rule: !has(self.d) || self.d < timestamp('2030-01-01T00:00:00Z')",)),
        ({"f": 5}, ("spec: Invalid value: f",)),
        ({"in": False}, ("failed rule: !has(self.__in__) || self.__in__",)),
        ({"m": {"x": "y"}}, ('spec: Invalid value: "object": no such key: k evaluating rule: !has(self.m)',)),
        ({"b": "x"}, ("spec.b: Invalid value: \"x\": failed rule: self != 'x'",)),
        ({"l": [{"name": "no"}]}, ("spec.l[0]: Invalid value: no no",)),
        (
            {"a": 101, "b": "x"},
            ("spec.a: Invalid value: 101: spec.a in body should be less than or equal to 100", "spec.b: Invalid"),
        ),
        ({"a": 1, "l": [{}, {}, {}]}, ("spec.l: Too many: 3: must have at most 2 items", NOT_CHECKED)),
    ],
)
def test_rules_say_what_is_wrong(ruled: Http, spec: dict[str, Any], told: tuple[str, ...]) -> None:
    answer = ruled.send("POST", DRIVERS, driver(f"n{abs(hash(str(spec)))}", spec))
    assert answer.status == (422 if told else 201)
    for text in told:
        assert text in answer.message


def test_the_root_has_a_name(ruled: Http) -> None:
    refused = ruled.send("POST", DRIVERS, driver("bad", {"a": 2}))
    assert refused.message == 'Driver.example.com "bad" is invalid: <nil>: Invalid value: bad name'


def test_rules_about_what_was_before(ruled: Http) -> None:
    """They count once there is something before; what they find is told at the path and for the reason they name."""
    ruled.ok("POST", DRIVERS, driver("kept", {"b": "q"}))
    refused = ruled.send("PATCH", f"{DRIVERS}/kept", {"spec": {"b": "n"}}, content=MERGE)
    assert refused.message == 'Driver.example.com "kept" is invalid: spec.b: Forbidden: b is immutable'
    ruled.ok("PATCH", f"{DRIVERS}/kept", {"spec": {"b": None}}, content=MERGE)
    refused = ruled.send("PATCH", f"{DRIVERS}/kept", {"spec": {"b": "n"}}, content=MERGE)
    assert 'spec: Invalid value: "object": no such key: b evaluating rule: b is immutable' in refused.message


def test_before_1_36_types_were_told() -> None:
    with Running(release=RELEASES["1.34"]) as running, running.http() as http:
        http.ok("POST", DEFINITIONS, with_rules(SPEC))
        refused = http.send("POST", DRIVERS, driver("a", {"a": 1, "b": "x"}))
    assert 'spec: Invalid value: "object": a is small' in refused.message
    assert "spec.b: Invalid value: \"string\": failed rule: self != 'x'" in refused.message


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (["self.nope > 1"], ["[0].rule: Invalid value: {", "undefined field 'nope'"]),
        (["self.a == 'x'"], ["compilation failed: ERROR", "found no matching overload for '_==_'"]),
        (["1"], ["cel expression must evaluate to a bool"]),
        (["self.nope > 1", " "], ["[1].rule: Required value: rule is not specified"]),
    ],
)
def test_rules_that_are_none(api: Http, rules: list[str], told: list[str]) -> None:
    spec: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    spec["x-kubernetes-validations"] = [{"rule": rule} for rule in rules]
    refused = api.send("POST", DEFINITIONS, with_rules(spec))
    assert refused.status == 422
    for text in told:
        assert text in refused.message
    assert ("undefined field" in refused.message) == (len(rules) == 1 and "nope" in rules[0])
