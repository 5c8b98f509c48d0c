"""x-kubernetes-validations: the answers of real API servers (1.34.4, 1.36.3, 1.37.1)."""

from collections.abc import Iterator
from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, definition, driver
from tests.controlplane.apiserver.running import MERGE, Http, Running

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
        "m": {
            "type": "object",
            "additionalProperties": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'no'"}]},
        },
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
    """The definition with another spec schema and a rule for names."""
    made = definition()
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name != 'bad'", "message": "bad name"}],
        "properties": {"spec": spec},
    }
    return made


@pytest.fixture(scope="module")
def api_with_rules() -> Iterator[Http]:
    with Running() as running, running.http() as http:
        http.ok("POST", DEFINITIONS, with_rules(SPEC))
        yield http


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"a": 2, "d": "2021-01-01T00:00:00Z", "f": 4.5, "in": True, "m": {"k": "v"}}, ()),
        ({"a": 1}, ("spec: Invalid value: a is small",)),
        ({"d": "2031-01-01T00:00:00Z"}, ("failed rule: !has(self.d) || self.d < timestamp('2030-01-01T00:00:00Z')",)),
        ({"f": 5}, ("spec: Invalid value: f",)),
        ({"in": False}, ("failed rule: !has(self.__in__) || self.__in__",)),
        ({"m": {"x": "y"}}, ('spec: Invalid value: "object": no such key: k evaluating rule: !has(self.m)',)),
        ({"m": {"k": "v", "a.b": "no"}}, ("spec.m[a.b]: Invalid value: \"no\": failed rule: self != 'no'",)),
        ({"b": "x"}, ("spec.b: Invalid value: \"x\": failed rule: self != 'x'",)),
        ({"l": [{"name": "no"}]}, ("spec.l[0]: Invalid value: no no",)),
        (
            {"a": 101, "b": "x"},
            ("spec.a: Invalid value: 101: spec.a in body should be less than or equal to 100", "spec.b: Invalid"),
        ),
        ({"a": 1, "l": [{}, {}, {}]}, ("spec.l: Too many: 3: must have at most 2 items", NOT_CHECKED)),
    ],
)
def test_violated_rule_is_reported(api_with_rules: Http, spec: dict[str, Any], expected: tuple[str, ...]) -> None:
    answer = api_with_rules.send("POST", DRIVERS, driver(f"n{abs(hash(str(spec)))}", spec))
    assert answer.status == (422 if expected else 201)
    for text in expected:
        assert text in answer.message


def test_rule_at_the_root_reads_metadata_name(api_with_rules: Http) -> None:
    refused = api_with_rules.send("POST", DRIVERS, driver("bad", {"a": 2}))
    assert refused.message == 'Driver.example.com "bad" is invalid: <nil>: Invalid value: bad name'


def test_transition_rule_applies_only_if_old_value_exists(api_with_rules: Http) -> None:
    """Transition rules apply only if there is an old value. Errors have the path and the reason of the rule."""
    api_with_rules.ok("POST", DRIVERS, driver("kept", {"b": "q"}))
    refused = api_with_rules.send("PATCH", f"{DRIVERS}/kept", {"spec": {"b": "n"}}, content=MERGE)
    assert refused.message == 'Driver.example.com "kept" is invalid: spec.b: Forbidden: b is immutable'
    api_with_rules.ok("PATCH", f"{DRIVERS}/kept", {"spec": {"b": None}}, content=MERGE)
    refused = api_with_rules.send("PATCH", f"{DRIVERS}/kept", {"spec": {"b": "n"}}, content=MERGE)
    assert 'spec: Invalid value: "object": no such key: b evaluating rule: b is immutable' in refused.message


@pytest.mark.parametrize(("version", "expected"), [("1.34", '"string": '), ("1.35", '"x": ')])
def test_rule_error_shows_value_type_before_1_35(version: str, expected: str) -> None:
    with Running(release=RELEASES[version]) as running, running.http() as http:
        http.ok("POST", DEFINITIONS, with_rules(SPEC))
        refused = http.send("POST", DRIVERS, driver("a", {"a": 1, "b": "x"}))
    assert ('spec: Invalid value: "object": a is small' in refused.message) == (version == "1.34")
    assert f"spec.b: Invalid value: {expected}failed rule: self != 'x'" in refused.message


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["self.nope > 1"], ["[0].rule: Invalid value: {", "undefined field 'nope'"]),
        (["self.a == 'x'"], ["compilation failed: ERROR", "found no matching overload for '_==_'"]),
        (["1"], ["cel expression must evaluate to a bool"]),
        (["self.nope > 1", " "], ["[1].rule: Required value: rule is not specified"]),
        (["self.a\n> 1"], ["[0].message: Required value: message must be specified if rule contains line breaks"]),
    ],
)
def test_definition_with_invalid_rule_is_refused(api: Http, rules: list[str], expected: list[str]) -> None:
    spec: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    spec["x-kubernetes-validations"] = [{"rule": rule} for rule in rules]
    refused = api.send("POST", DEFINITIONS, with_rules(spec))
    assert refused.status == 422
    for text in expected:
        assert text in refused.message
    assert ("undefined field" in refused.message) == (len(rules) == 1 and "nope" in rules[0])


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"message": " "}, '.message: Invalid value: " ": must be non-empty if specified'),
        ({"message": "a\nb"}, '.message: Invalid value: "a\\nb": must not contain line breaks'),
        ({"messageExpression": " "}, ".messageExpression: Required value: messageExpression must be non-empty"),
        ({"messageExpression": "1"}, "messageExpression must evaluate to a string"),
        ({"messageExpression": "self.x"}, "messageExpression compilation failed: ERROR"),
        ({"reason": "Nope"}, '.reason: Unsupported value: "Nope": supported values: "FieldValueDuplicate", "FieldV'),
        ({"fieldPath": ".x"}, '.fieldPath: Invalid value: ".x": must be a valid path'),
        ({"fieldPath": "a"}, '.fieldPath: Invalid value: "a": must be a valid path'),
        ({"optionalOldSelf": False}, ".optionalOldSelf: Invalid value: false: may not be set if oldSelf is not used"),
        ({"fieldPath": ".n['b c']"}, ""),
        ({"fieldPath": ".m['any']"}, ""),
        ({"rule": "self.a > 1 || 'oldSelf' == 'x'"}, ""),
    ],
)
def test_fields_of_a_rule_are_validated(api: Http, more: dict[str, Any], expected: str) -> None:
    spec: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "n": {"type": "object", "properties": {"b c": {"type": "string"}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "x-kubernetes-validations": [{"rule": "self.a > 1"} | more],
    }
    answer = api.send("POST", DEFINITIONS, with_rules(spec), dryRun="All")
    assert answer.status == (422 if expected else 201)
    assert expected in (answer.message if expected else "")


def test_transition_rule_in_list_items_requires_map_keys(api: Http) -> None:
    item = {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    members = {"k": {"type": "string"}, "v": item}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    items = {"type": "object", "properties": members, "required": ["k"]}
    for more in ({}, keyed):
        spec = {"type": "object", "properties": {"l": {"type": "array", "items": items} | more}}
        answer = api.send("POST", DEFINITIONS, with_rules(spec), dryRun="All")
        assert answer.status == (201 if more else 422)
    assert (
        "within spec.validation.openAPIV3Schema.properties[spec].properties[l]"
        in api.send(
            "POST",
            DEFINITIONS,
            with_rules({"type": "object", "properties": {"l": {"type": "array", "items": items}}}),
        ).message
    )


def test_rule_with_optional_old_self_applies_on_create(api: Http) -> None:
    rule = {"rule": "!oldSelf.hasValue() || self.a >= oldSelf.value().a", "optionalOldSelf": True, "message": "falls"}
    spec = {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [rule]}
    api.ok("POST", DEFINITIONS, with_rules(spec))
    api.ok("POST", DRIVERS, driver("d", {"a": 3}))
    refused = api.send("PATCH", f"{DRIVERS}/d", {"spec": {"a": 2}}, content=MERGE)
    assert refused.message == 'Driver.example.com "d" is invalid: spec: Invalid value: falls'
    api.ok("PATCH", f"{DRIVERS}/d", {"spec": {"a": 4}}, content=MERGE)


ITEM: dict[str, Any] = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": {"type": "string"}, "v": {"type": "string"}},
}
LOOSE: dict[str, Any] = {
    "a": {"type": "integer"},
    "b": {"type": "string"},
    "m": {"type": "object", "properties": {"p": {"type": "string"}}},
    "l": {"type": "array", "items": {"type": "string"}},
    "k": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": ITEM},
}
TIGHT: dict[str, Any] = {
    "a": {"type": "integer", "maximum": 5},
    "b": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "no x"}]},
    "m": {"type": "object", "properties": {"p": {"type": "string"}, "r": {"type": "string"}}, "required": ["r"]},
    "l": {"type": "array", "items": {"type": "string", "maxLength": 2}},
    "k": LOOSE["k"] | {"items": ITEM | {"properties": ITEM["properties"] | {"v": {"type": "string", "maxLength": 2}}}},
}
OLD_SPEC = {"a": 9, "b": "x", "m": {"p": "1"}, "l": ["abc"], "k": [{"k": "1", "v": "abc"}, {"k": "2"}]}


@pytest.fixture
def with_stricter_rule(api: Http) -> Http:
    """A server that stored the resource `old` before the definition's rules became stricter."""
    api.ok("POST", DEFINITIONS, with_rules({"type": "object", "properties": LOOSE}))
    api.ok("POST", DRIVERS, driver("old", OLD_SPEC))
    api.ok(
        "PATCH",
        f"{DEFINITIONS}/drivers.example.com",
        with_rules({"type": "object", "properties": TIGHT}),
        content=MERGE,
    )
    return api


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, ""),
        ({"a": 10}, "spec.a: Invalid value: 10: spec.a in body should be less than or equal to 5"),
        ({"a": 4}, ""),
        ({"m": {"p": "2"}}, "spec.m.r: Required value"),
        ({"l": ["abc", "d"]}, "spec.l[0]: Too long: may not be more than 2 bytes"),
        ({"k": [{"k": "2"}, {"k": "1", "v": "abc"}]}, ""),
        ({"k": [{"k": "1", "v": "abc"}, {"k": "2", "v": "abcd"}]}, "spec.k[1].v: Too long: may not be more than 2"),
        ({"k": [{"k": "3", "v": "abc"}]}, "spec.k[0].v: Too long: may not be more than 2 bytes"),
    ],
)
def test_update_keeps_unchanged_invalid_values(with_stricter_rule: Http, patch: dict[str, Any], expected: str) -> None:
    """Unchanged values are not validated again where they can be matched. A violated CEL rule only causes a warning."""
    body = {"metadata": {"labels": {"a": "b"}}, "spec": patch}
    answer = with_stricter_rule.send("PATCH", f"{DRIVERS}/old", body, content=MERGE)
    assert answer.status == (422 if expected else 200)
    assert expected in (answer.message if expected else "")
    is_asked = not expected or "should be" in expected  # other errors prevent the evaluation of the rules
    assert answer.warnings == (['299 - "spec.b: Invalid value: \\"x\\": no x"'] if is_asked else [])


def test_valid_value_cannot_become_invalid_again(with_stricter_rule: Http) -> None:
    with_stricter_rule.ok("PATCH", f"{DRIVERS}/old", {"spec": {"b": "y"}}, content=MERGE)
    refused = with_stricter_rule.send("PATCH", f"{DRIVERS}/old", {"spec": {"b": "x"}}, content=MERGE)
    assert refused.message == 'Driver.example.com "old" is invalid: spec.b: Invalid value: "x": no x'
    assert with_stricter_rule.send("POST", DRIVERS, driver("new", OLD_SPEC)).status == 422
