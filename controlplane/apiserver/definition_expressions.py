"""x-kubernetes-validations: rules in CEL that a definition's schema has for its objects.

Source: kubernetes.io "Validation rules" of custom resources; the wording is kube-apiserver's. What a rule could cost
at the most is not estimated; what rules do cost is bounded.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from controlplane.apiserver.definition_types import Fields, type_of, value_of
from controlplane.apiserver.kinds import Plain, Schema
from resourceapi.cel import CelError, CelEvalError, Environment, Expression, compile_expression
from resourceapi.cel.environment import CURRENT, build_environment
from resourceapi.cel.types import BOOL, DYN, STRING
from resourceapi.objects import ErrorList, ErrorType, FieldError
from resourceapi.objects.release import Release

RULES = "x-kubernetes-validations"
MAX_BUDGET = 10_000_000
"""What all rules may cost for one write."""
_BLOCKING = frozenset(
    (
        ErrorType.NOT_SUPPORTED,
        ErrorType.REQUIRED,
        ErrorType.TOO_LONG,
        ErrorType.TOO_MANY,
        ErrorType.TYPE_INVALID,
    )
)
_WITHOUT_VALUE = (ErrorType.FORBIDDEN, ErrorType.REQUIRED)
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)
_REASONS = {each.reason: each for each in ErrorType}
_NOTHING = object()
_OF_BEFORE = re.compile(r"\boldSelf\b")


class _Rule(NamedTuple):
    expression: Expression
    message_expression: Expression | None
    is_transition: bool


def has_rules(schema: Any) -> bool:
    """Whether there is a rule anywhere in a schema."""
    if isinstance(schema, Mapping):
        return bool(schema.get(RULES)) or any(map(has_rules, schema.values()))
    return isinstance(schema, list) and any(map(has_rules, schema))


def check_rules(errors: ErrorList, path: str, schema: Schema, *, is_root: bool) -> None:
    """What is wrong with the rules of one place of a schema, to which `path` leads."""
    rules = {f"{path}.{RULES}[{index}].rule": each for index, each in enumerate(schema.get(RULES) or ())}
    missing = [here for here, said in rules.items() if not str(said.get("rule") or "").strip()]
    for here in missing:
        errors.required(here, "rule is not specified")
    for here, said in () if missing else rules.items():
        try:
            _rule(said, schema, is_root=is_root)
        except CelError as error:
            errors.invalid(here, {_go(name): said.get(name, empty) for name, empty in _MEMBERS.items()}, str(error))


def check_object(errors: ErrorList, schema: Schema, new: Plain, old: Plain | None, release: Release) -> None:
    """Add what the rules have against an object; some of what is in `errors` before keeps them from being asked."""
    if any(each.type in _BLOCKING for each in errors):
        errors.append(FieldError(ErrorType.INVALID, "<nil>", f"Invalid value: null: {_NOT_CHECKED}"))
        return
    try:
        _Walk(errors, release).visit(new, _NOTHING if old is None else old, schema, "")
    except _OutOfBudgetError:
        text = "validation failed due to running out of cost budget, no further validation rules will be run"
        errors.append(FieldError(ErrorType.INVALID, "<nil>", f"Invalid value: {text}"))


class _OutOfBudgetError(Exception):
    """The rules of one write cost too much."""


class _Place(NamedTuple):
    """A value with rules, and what these are given."""

    value: Any
    schema: Schema
    path: str
    given: Mapping[str, Any]


class _Walk:
    def __init__(self, errors: ErrorList, release: Release) -> None:
        self._errors = errors
        self._tells_values = release.rules_tell_values
        self._left = MAX_BUDGET
        self._known: dict[int, list[tuple[Mapping[str, Any], _Rule]]] = {}  # by the identity of a place's schema

    def visit(self, value: Any, old: Any, schema: Schema, path: str) -> None:
        """Ask the rules of a value, then those of what is in it; `old` is `_NOTHING` where there was none."""
        if value is None:
            return
        if schema.get(RULES):
            given = {"self": value_of(value, schema)}
            if old is not _NOTHING and old is not None:
                given["oldSelf"] = value_of(old, schema)
            for said, rule in self._programs(schema, is_root=not path):
                self._ask(said, rule, _Place(value, schema, path, given))
        if isinstance(value, dict):
            known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
            for name, item in value.items():
                child = known.get(name, extra)
                if isinstance(child, Mapping):
                    before = old.get(name, _NOTHING) if isinstance(old, dict) else _NOTHING
                    self.visit(item, before, child, f"{path}.{name}" if path else name)
        elif isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
            keys = schema.get("x-kubernetes-list-map-keys") or ()
            befores = {_key(each, keys): each for each in old} if keys and isinstance(old, list) else {}
            for index, item in enumerate(value):
                self.visit(item, befores.get(_key(item, keys), _NOTHING), items, f"{path}[{index}]")

    def _programs(self, schema: Schema, *, is_root: bool) -> "list[tuple[Mapping[str, Any], _Rule]]":
        """Return the rules of a place of the schema, found once for all of a list's items."""
        known = self._known.get(id(schema))
        if known is None:
            known = [(each, _rule(each, schema, is_root=is_root)) for each in schema[RULES]]
            self._known[id(schema)] = known
        return known

    def _ask(self, said: Mapping[str, Any], rule: "_Rule", place: _Place) -> None:
        if rule.is_transition and "oldSelf" not in place.given:
            return
        text, message = str(said["rule"]).strip(), str(said.get("message") or "").strip()
        try:
            if self._value(rule.expression, place.given) is True:
                return
        except CelEvalError as error:
            told = f"{error} evaluating rule: {message or text}"
            self._errors.invalid(place.path or "<nil>", place.schema.get("type", ""), told)
            return
        message = self._told(rule, place) or message or f"failed rule: {text}"
        reason = _REASONS.get(str(said.get("reason") or ""), ErrorType.INVALID)
        if reason not in _WITHOUT_VALUE and (not self._tells_values or not isinstance(place.value, dict | list)):
            shown = place.value if self._tells_values else place.schema.get("type", "")
            message = f"{msgspec.json.encode(shown).decode()}: {message}"
        where = (place.path + str(said.get("fieldPath") or "")).removeprefix(".")
        self._errors.append(FieldError(reason, where or "<nil>", f"{reason.value[1]}: {message}"))

    def _told(self, rule: "_Rule", place: _Place) -> str:
        """What the rule's expression for a message says; empty where it has none, fails or says two lines."""
        if rule.message_expression is None:
            return ""
        try:
            found = self._value(rule.message_expression, place.given)
        except CelEvalError:
            return ""
        return found.strip() if isinstance(found, str) and "\n" not in found else ""

    def _value(self, expression: Expression, given: Mapping[str, Any]) -> Any:
        value, cost = expression.evaluate(given)
        self._left -= cost
        if self._left < 0:
            raise _OutOfBudgetError
        return value


_MEMBERS: Plain = {
    "rule": "",
    "message": "",
    "messageExpression": "",
    "reason": None,
    "fieldPath": "",
    "optionalOldSelf": None,
}


def _go(name: str) -> str:
    return name[:1].upper() + name[1:]


def _rule(said: Mapping[str, Any], schema: Schema, *, is_root: bool) -> _Rule:
    """A rule as a program. Raises CelError."""
    text, told = str(said.get("rule") or ""), str(said.get("messageExpression") or "")
    return _compiled(text, told, msgspec.json.encode(schema), is_root)


@functools.lru_cache(maxsize=256)
def _environment(schema: bytes, is_root: bool) -> Environment:
    fields: Fields = {}
    of_self = type_of(msgspec.json.decode(schema), fields, is_root=is_root)
    return build_environment(CURRENT, variables={"self": of_self, "oldSelf": of_self}, fields=fields)


@functools.lru_cache(maxsize=1024)
def _compiled(rule: str, message_expression: str, schema: bytes, is_root: bool) -> _Rule:
    environment = _environment(schema, is_root)
    expression = compile_expression(rule, environment)
    if expression.type not in (BOOL, DYN):
        raise CelError("cel expression must evaluate to a bool")
    told = compile_expression(message_expression, environment) if message_expression else None
    if told is not None and told.type not in (STRING, DYN):
        raise CelError("messageExpression must evaluate to a string")
    return _Rule(expression, told, bool(_OF_BEFORE.search(rule)))


def _key(item: Any, keys: Any) -> Any:
    return tuple(str(item.get(key)) for key in keys) if keys and isinstance(item, dict) else None
