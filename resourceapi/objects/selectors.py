"""Selectors of labels, fields and nodes: parsing and matching (allocator.md 1.4, 5.11).

A label selector is a text such as `app in (a,b),!old`, a field selector one such as `spec.driver=x`. A node selector
is an object; a fault anywhere in it makes the whole selector fail, for every node.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resourceapi.objects import names
from resourceapi.objects.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from resourceapi.objects.errors import ErrorList, quoted_text

NAME_FIELD = "metadata.name"

_INTEGER = re.compile(r"[-+]?[0-9]{1,30}", re.ASCII)
_TOKEN = re.compile(r"[ \t\r\n]*+(?:(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^=!(),<> \t\r\n]+)|\Z)")
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "=", "==": "==", "!=": "!=", ">": "Gt", "<": "Lt"}
_KNOWN_NODE_OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


class SelectorError(ValueError):
    """A selector breaks a rule; the message is the reference's."""


class Requirement(NamedTuple):
    """A condition on one label. Operators: In, NotIn, Exists, DoesNotExist, Gt, Lt, =, ==, !=."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "In" | "=" | "==":
                return value is not None and value in self.values
            case "NotIn" | "!=":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        number, limit = _int64(value or ""), _int64(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator == "Gt" else number < limit


class LabelSelector(NamedTuple):
    """Conditions that must all hold; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet all conditions."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldTerm(NamedTuple):
    """A field that must have a value, or must not have it."""

    field: str
    equal: bool
    value: str


class FieldSelector(NamedTuple):
    """Conditions on fields that must all hold. The server checks which fields exist."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether fields meet all conditions; an absent field counts as empty."""
        return all((fields.get(term.field, "") == term.value) == term.equal for term in self.terms)


class NodeMatcher:
    """A valid node selector, ready to match."""

    def __init__(self, selector: NodeSelector) -> None:
        """Raise SelectorError, which names all faults, if the selector is invalid."""
        errors = ErrorList()
        for index, term in enumerate(selector.node_selector_terms):
            _check_term(errors, f"nodeSelectorTerms[{index}]", term)
        if errors:
            messages = list(dict.fromkeys(str(error) for error in errors))
            raise SelectorError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
        self._terms = [
            (_requirements(term.match_expressions), _requirements(term.match_fields))
            for term in selector.node_selector_terms
            if term.match_expressions or term.match_fields  # an empty term matches nothing
        ]

    def matches(self, node: Node | None) -> bool:
        """Return whether one of the terms holds for the node."""
        return node is not None and any(self._holds(term, node) for term in self._terms)

    @staticmethod
    def _holds(term: tuple[list[Requirement], list[Requirement]], node: Node) -> bool:
        on_labels, on_fields = term
        if not all(requirement.matches(node.metadata.labels) for requirement in on_labels):
            return False
        name = node.metadata.name
        if not name:
            return True  # a node without a name has no fields to compare
        fields = {requirement.key: "" for requirement in on_fields} | {NAME_FIELD: name}
        return all(requirement.matches(fields) for requirement in on_fields)


def node_matches(selector: NodeSelector, node: Node | None) -> bool:
    """Return whether a node selector matches a node; raises SelectorError."""
    return NodeMatcher(selector).matches(node)


def pod_selects(pod: Pod, node: Node) -> bool:
    """Return whether a node meets a pod's node selector and required affinity; an invalid affinity matches no node."""
    if any(node.metadata.labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    try:
        return required is None or node_matches(required, node)
    except SelectorError:
        return False


def parse_label_selector(text: str) -> LabelSelector:
    """Parse a label selector; raises SelectorError."""
    parser = _LabelParser(text)
    requirements = []
    word = parser.peek()
    while word:
        if parser.is_symbol and word != "!":
            raise SelectorError(f"found '{word}', expected: !, identifier, or 'end of string'")
        try:
            requirements.append(parser.requirement())
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        separator = parser.take()
        if separator and separator != ",":
            raise SelectorError(f"found '{separator}', expected: ',' or 'end of string'")
        word = parser.peek()
        if separator and (not word or (parser.is_symbol and word != "!")):
            raise SelectorError(f"found '{word}', expected: identifier after ','")
    return LabelSelector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def parse_field_selector(text: str) -> FieldSelector:
    """Parse a field selector; raises SelectorError. `\\` escapes `,`, `=` and itself in values."""
    terms = []
    for part in sorted(re.findall(r"(?:[^\\,]|\\.|\\\Z)+", text, re.DOTALL)):
        found = re.search(r"!=|==|=", part)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        value = _unescaped(part[found.end() :])
        if found.start() or value:  # an empty field with an empty value is no condition
            terms.append(FieldTerm(part[: found.start()], found.group() != "!=", value))
    return FieldSelector(tuple(terms))


class _LabelParser:
    """Parser of a label selector with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = [(match["symbol"] or match["word"] or "", bool(match["symbol"])) for match in _tokens(text)]
        self._position = 0

    @property
    def is_symbol(self) -> bool:
        return self._tokens[self._position][1]

    def peek(self) -> str:
        return self._tokens[self._position][0]

    def take(self) -> str:
        token = self.peek()
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return token

    def requirement(self) -> Requirement:
        absent = self.peek() == "!"
        if absent:
            self.take()
        if self.is_symbol or not self.peek():
            raise SelectorError(f"found '{self.peek()}', expected: identifier")
        key = self.take()
        problems = names.label_key(key)
        if problems:
            raise SelectorError(f"<nil>: Invalid value: {quoted_text(key)}: {'; '.join(problems)}")
        if self.peek() in ("", ","):
            return Requirement(key, "DoesNotExist" if absent else "Exists")
        if absent:
            return Requirement(key, "DoesNotExist")
        token = self.take()
        operator = _OPERATORS.get(token)
        if operator is None:
            expected = "in, notin, =, ==, !=, gt, lt"
            raise SelectorError(f"found '{token}', expected: {expected}")
        values = self._list() if operator in ("In", "NotIn") else (self._value(),)
        requirement = Requirement(key, operator, values)
        errors = ErrorList()
        _check_requirement(errors, "", requirement)
        if errors:
            messages = [str(error) for error in errors]
            raise SelectorError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
        return requirement

    def _value(self) -> str:
        if self.peek() in ("", ","):
            return ""
        if self.is_symbol:
            raise SelectorError(f"found '{self.take()}', expected: identifier")
        return self.take()

    def _list(self) -> tuple[str, ...]:
        """Parse `(a,b)`; nothing between commas means the empty value."""
        opening = self.take()
        if opening != "(":
            raise SelectorError(f"found '{opening}' expected: '('")
        values = set()
        while True:
            if self.is_symbol and self.peek() in (",", ")"):
                values.add("")
            elif self.is_symbol or not self.peek():
                raise SelectorError(f"found '{self.peek()}', expected: ',', ')' or identifier")
            else:
                values.add(self.take())
            closing = self.take()
            if closing == ")":
                return tuple(sorted(values))
            if closing != ",":
                raise SelectorError(f"found '{closing}', expected: ',' or ')'")


def _tokens(text: str) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    position = 0
    while not found or found[-1].end() < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None, "every character begins a token"
        found.append(match)
        position = match.end()
    if found[-1].group().strip():
        end = _TOKEN.match(text, len(text))
        assert end is not None, "the end is a token"
        found.append(end)
    return found


def _unescaped(value: str) -> str:
    def plain(match: re.Match[str]) -> str:
        sequence = match.group()
        if sequence in ("\\\\", "\\,", "\\="):
            return sequence[1]
        if sequence == "=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(sequence)}")
        raise SelectorError(f"invalid field selector: invalid escape sequence: {sequence}")

    return re.sub(r"\\.|\\\Z|=", plain, value, flags=re.DOTALL)


def _requirements(found: Sequence[NodeSelectorRequirement]) -> list[Requirement]:
    return [Requirement(item.key, item.operator, item.values) for item in found]


def _check_term(errors: ErrorList, path: str, term: NodeSelectorTerm) -> None:
    for index, item in enumerate(term.match_expressions):
        here = f"{path}.matchExpressions[{index}]"
        if item.operator not in _KNOWN_NODE_OPERATORS:
            errors.not_supported(f"{here}.operator", item.operator, _KNOWN_NODE_OPERATORS)
            continue
        _check_requirement(errors, f"{here}.", Requirement(item.key, item.operator, item.values))
    for index, item in enumerate(term.match_fields):
        here = f"{path}.matchFields[{index}]"
        if item.operator not in ("In", "NotIn"):
            errors.not_supported(f"{here}.operator", item.operator, ["In", "NotIn"])
        elif len(item.values) != 1:
            errors.invalid(f"{here}.values", item.values, "must have one element")


def _check_requirement(errors: ErrorList, prefix: str, requirement: Requirement) -> None:
    key, operator, values = requirement
    problems = names.label_key(key)
    if problems:
        errors.invalid(f"{prefix}key", key, "; ".join(problems))
    if operator in ("In", "NotIn") and not values:
        errors.invalid(f"{prefix}values", values, "for 'in', 'notin' operators, values set can't be empty")
    elif operator in ("Exists", "DoesNotExist") and values:
        errors.invalid(f"{prefix}values", values, "values set must be empty for exists and does not exist")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            errors.invalid(f"{prefix}values", values, "for 'Gt', 'Lt' operators, exactly one value is required")
        for index, value in enumerate(values):
            if _int64(value) is None:
                text = "for 'Gt', 'Lt' operators, the value must be an integer"
                errors.invalid(f"{prefix}values[{index}]", value, text)
    for index, value in enumerate(values):
        problems = names.label_value(value)
        if problems:
            errors.invalid(f"{prefix}values[{index}][{key}]", value, "; ".join(problems))


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
