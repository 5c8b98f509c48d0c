"""x-kubernetes-validations: the CEL rules of a definition's schema.

Source: kubernetes.io "Validation rules" of custom resources; the texts are kube-apiserver's. The cost of a rule is not
estimated in advance, but it is limited at run time.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from controlplane.apiserver.definitions.pruning import NEW, items_before
from controlplane.apiserver.definitions.shape import internal_form_of
from controlplane.apiserver.definitions.structural import field_of, unsupported
from controlplane.apiserver.definitions.types import Fields, type_of, value_of
from controlplane.apiserver.kinds import Plain, Schema, WriteContext
from resourceapi.cel import CelError, CelEvalError, Environment, Expression, compile_expression
from resourceapi.cel.environment import CURRENT, build_environment
from resourceapi.cel.types import BOOL, DYN, STRING, optional_of
from resourceapi.cel.values import NONE, Optional
from resourceapi.objects import ErrorList, ErrorType, FieldError
from resourceapi.objects.json_value import json_equal

RULES = "x-kubernetes-validations"
MAX_BUDGET = 10_000_000
"""The most that all rules of one write can cost."""
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
_RULE_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_TEXTS = ("rule", "message", "messageExpression", "fieldPath")
_LINES = re.compile(r"[\n\r]")


class _Rule(NamedTuple):
    expression: Expression
    message_expression: Expression | None
    is_transition: bool
    has_optional_old_self: bool


def has_rules(schema: Any) -> bool:
    """Return whether a schema has a rule anywhere."""
    if isinstance(schema, Mapping):
        return bool(schema.get(RULES)) or any(map(has_rules, schema.values()))
    return isinstance(schema, list) and any(map(has_rules, schema))


def check_rule_words(errors: ErrorList, path: str, schema: Schema) -> None:
    """Add the faults of the rules at one place of a schema that are found without compiling them."""
    for index, declared in enumerate(schema.get(RULES) or ()):
        _check_words(errors, f"{path}.{RULES}[{index}]", declared, schema)


def check_rule_programs(errors: ErrorList, path: str, schema: Schema, *, is_root: bool, unknown: str = "") -> None:
    """Add the faults of the expressions in the rules at one place.

    `unknown` is the path of an enclosing part whose members cannot be correlated with their old values; empty if there
    is none.
    """
    for index, declared in enumerate(schema.get(RULES) or ()):
        here, shown = f"{path}.{RULES}[{index}]", internal_form_of(declared, "ValidationRule")
        without_message = _rule_or_fault({**declared, "messageExpression": ""}, schema, is_root=is_root)
        rule = _rule_or_fault(declared, schema, is_root=is_root)
        if isinstance(without_message, CelError):
            errors.invalid(f"{here}.rule", shown, str(without_message))
        elif isinstance(rule, CelError):
            prefix = "messageExpression " if str(rule).startswith("compilation failed") else ""
            errors.invalid(f"{here}.messageExpression", shown, f"{prefix}{rule}")
        if isinstance(without_message, CelError) or not without_message.is_transition:
            if declared.get("optionalOldSelf") is not None:
                text = "may not be set if oldSelf is not used in rule"
                errors.invalid(f"{here}.optionalOldSelf", declared["optionalOldSelf"], text)
        elif unknown:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {unknown}"
            errors.invalid(f"{here}.rule", declared["rule"], text)


def _check_words(errors: ErrorList, path: str, declared: Plain, schema: Schema) -> None:
    """Add the faults of a rule that are found without compiling it."""
    rule, message, of_message, field_path = (str(declared.get(name) or "") for name in _TEXTS)
    if not rule.strip():
        errors.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        errors.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _LINES.search(message.strip()):
        errors.invalid(f"{path}.message", message, "must not contain line breaks")
    elif _LINES.search(rule.strip()) and not message.strip():
        errors.required(f"{path}.message", "message must be specified if rule contains line breaks")
    if of_message and not of_message.strip():
        errors.required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if declared.get("reason") is not None and declared["reason"] not in _RULE_REASONS:
        errors.not_supported(f"{path}.reason", declared["reason"], list(_RULE_REASONS))
    if field_path and not field_path.strip():
        errors.invalid(f"{path}.fieldPath", field_path, "must be non-empty if specified")
    if _LINES.search(field_path):
        errors.invalid(f"{path}.fieldPath", field_path, "must not contain line breaks")
    if field_path and not unsupported(schema) and field_of(schema, field_path)[1] is None:
        errors.invalid(f"{path}.fieldPath", field_path, "must be a valid path")


def check_object(errors: ErrorList, schema: Schema, new: Plain, old: Plain | None, context: WriteContext) -> None:
    """Add the violations of the rules by an object. After some kinds of `errors`, the rules are not evaluated.

    For parts that an update does not change, violations are only warnings (KEP-4008).
    """
    if any(each.type in _BLOCKING for each in errors):
        errors.append(FieldError(ErrorType.INVALID, "<nil>", f"Invalid value: null: {_NOT_CHECKED}"))
        return
    try:
        before = NEW if old is None else old
        _Walk(errors, context).visit(new, before, schema, "", None if old is None else (new, old))
    except _OutOfBudgetError:
        text = "validation failed due to running out of cost budget, no further validation rules will be run"
        errors.append(FieldError(ErrorType.INVALID, "<nil>", f"Invalid value: {text}"))


class _OutOfBudgetError(Exception):
    """The rules of one write cost too much."""


class _Place(NamedTuple):
    """A value with rules, and the variables of these."""

    value: Any
    schema: Schema
    path: str
    variables: Mapping[str, Any]
    old: Any
    pair: tuple[Any, Any] | None


_Programs = list[tuple[Mapping[str, Any], _Rule | CelError]]
"""The rules of a definition, each with its compiled form or the error."""
_Pair = tuple[Any, Any]
"""A value and its old value: the innermost enclosing value, or the value itself, whose old value is known."""


class _Walk:
    def __init__(self, errors: ErrorList, context: WriteContext) -> None:
        self._errors, self._warnings = errors, context.warnings
        self._shows_values = context.release.rule_errors_show_values
        self._left = MAX_BUDGET
        self._known: dict[int, _Programs] = {}  # by the identity of a place's schema

    def visit(self, value: Any, old: Any, schema: Schema, path: str, pair: _Pair | None) -> None:
        """Evaluate the rules of a value, then those of its members. `old` is `NEW` if there was none."""
        if value is None:
            return
        if schema.get(RULES):
            place = _Place(value, schema, path, {"self": value_of(value, schema)}, NEW if old is None else old, pair)
            for declared, rule in self._programs(schema, is_root=not path):
                if isinstance(rule, CelError):
                    kind = schema.get("type", "")
                    self._errors.invalid(path or "<nil>", kind, f"rule compile error: {rule}")
                else:
                    self._evaluate(declared, rule, place)
        if isinstance(value, dict):
            known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
            for name, item in value.items():
                child = known.get(name, extra)
                if isinstance(child, Mapping):
                    before = old.get(name, NEW) if isinstance(old, dict) else NEW
                    here = f"{path}[{name}]" if name not in known else f"{path}.{name}" if path else name
                    self.visit(item, before, child, here, _pair_of(item, before, pair))
        elif isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
            was = items_before(old, schema)
            for index, item in enumerate(value):
                before = was(item)
                self.visit(item, before, items, f"{path}[{index}]", _pair_of(item, before, pair))

    def _programs(self, schema: Schema, *, is_root: bool) -> _Programs:
        """Return the rules of a place of the schema. They are compiled once for all items of a list."""
        known = self._known.get(id(schema))
        if known is None:
            known = [(each, _rule_or_fault(each, schema, is_root=is_root)) for each in schema[RULES]]
            self._known[id(schema)] = known
        return known

    def _evaluate(self, declared: Mapping[str, Any], rule: _Rule, place: _Place) -> None:
        if rule.is_transition and place.old is NEW and not rule.has_optional_old_self:
            return
        variables, schema = place.variables, place.schema
        if rule.has_optional_old_self:
            variables = {**variables, "oldSelf": NONE if place.old is NEW else Optional(value_of(place.old, schema))}
        elif place.old is not NEW:
            variables = {**variables, "oldSelf": value_of(place.old, schema)}
        text, message = str(declared["rule"]).strip(), str(declared.get("message") or "").strip()
        try:
            if self._value(rule.expression, variables) is True:
                return
        except CelEvalError as error:
            failure = f"{error} evaluating rule: {message or text}"
            self._errors.invalid(place.path or "<nil>", schema.get("type", ""), failure)
            return
        message = self._message(rule, variables) or message or f"failed rule: {text}"
        reason = _REASONS.get(str(declared.get("reason") or ""), ErrorType.INVALID)
        if reason not in _WITHOUT_VALUE and (not self._shows_values or not isinstance(place.value, dict | list)):
            shown = place.value if self._shows_values else schema.get("type", "")
            message = f"{msgspec.json.encode(shown).decode()}: {message}"
        where = (place.path + str(declared.get("fieldPath") or "")).removeprefix(".")
        found = FieldError(reason, where or "<nil>", f"{reason.value[1]}: {message}")
        if not rule.is_transition and place.pair is not None and json_equal(*place.pair):
            self._warnings.append(str(found))
        else:
            self._errors.append(found)

    def _message(self, rule: _Rule, variables: Mapping[str, Any]) -> str:
        """The result of a rule's message expression; empty if it has none, fails, or has two lines."""
        if rule.message_expression is None:
            return ""
        try:
            found = self._value(rule.message_expression, variables)
        except CelEvalError:
            return ""
        return found.strip() if isinstance(found, str) and "\n" not in found else ""

    def _value(self, expression: Expression, variables: Mapping[str, Any]) -> Any:
        value, cost = expression.evaluate(variables)
        self._left -= cost
        if self._left < 0:
            raise _OutOfBudgetError
        return value


def _rule(declared: Mapping[str, Any], schema: Schema, *, is_root: bool) -> _Rule:
    """A compiled rule. Raises CelError."""
    text, message_expression = str(declared.get("rule") or ""), str(declared.get("messageExpression") or "")
    return _compiled(
        text, message_expression, msgspec.json.encode(schema), is_root, declared.get("optionalOldSelf") is True
    )


def _rule_or_fault(declared: Mapping[str, Any], schema: Schema, *, is_root: bool) -> _Rule | CelError:
    """A compiled rule or its error. A stored definition can use CEL functions of a newer release."""
    try:
        return _rule(declared, schema, is_root=is_root)
    except CelError as error:
        return error


@functools.lru_cache(maxsize=256)
def _environment(schema: bytes, is_root: bool, has_optional_old_self: bool) -> Environment:
    fields: Fields = {}
    of_self = type_of(msgspec.json.decode(schema), fields, is_root=is_root)
    before = optional_of(of_self) if has_optional_old_self else of_self
    return build_environment(CURRENT, variables={"self": of_self, "oldSelf": before}, fields=fields)


@functools.lru_cache(maxsize=1024)
def _compiled(rule: str, message_expression: str, schema: bytes, is_root: bool, has_optional_old_self: bool) -> _Rule:
    environment = _environment(schema, is_root, has_optional_old_self)
    expression = compile_expression(rule, environment)
    if expression.type not in (BOOL, DYN):
        raise CelError("cel expression must evaluate to a bool")
    message_program = compile_expression(message_expression, environment) if message_expression else None
    if message_program is not None and message_program.type not in (STRING, DYN):
        raise CelError("messageExpression must evaluate to a string")
    return _Rule(expression, message_program, "oldSelf" in expression.names, has_optional_old_self)


def _pair_of(value: Any, before: Any, around: _Pair | None) -> _Pair | None:
    return around if before is NEW else (value, before)
