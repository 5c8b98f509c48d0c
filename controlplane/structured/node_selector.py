"""Node selectors: does a slice or device serve a node?

Rules: terms are alternatives, requirements inside a term all hold, a term without requirements matches nothing. A
selector with a fault anywhere fails as a whole, whatever the node.
"""

import re
from collections.abc import Iterator, Sequence

from resourceapi.objects.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

_NAME_FIELD = "metadata.name"
_INTEGER = re.compile(r"[-+]?[0-9]+")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_PREFIX_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


class NodeSelectorError(ValueError):
    """The selector breaks a rule; the text is upstream's."""


def node_matches(selector: NodeSelector, node: Node | None) -> bool:
    """Whether the selector matches the node; raises NodeSelectorError."""
    faults = [
        fault for index, term in enumerate(selector.node_selector_terms) for fault in _faults(term, f"[{index}]")
    ]
    if faults:
        text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        raise NodeSelectorError(f"failed to parse node selector {_dump(selector)}: {text}")
    return node is not None and any(_term_matches(term, node) for term in selector.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels, name = node.metadata.labels, node.metadata.name
    if not all(_holds(x, labels.get(x.key)) for x in term.match_expressions):
        return False
    return not name or all(_holds(x, name if x.key == _NAME_FIELD else "") for x in term.match_fields)


def _holds(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            number = None if value is None else _int64(value)
            if number is None:
                return False
            limit = int(requirement.values[0])
            return number > limit if operator == "Gt" else number < limit


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text) if len(text) < 30 else 2**64
    return number if -(2**63) <= number < 2**63 else None


def _faults(term: NodeSelectorTerm, index: str) -> Iterator[str]:
    for position, requirement in enumerate(term.match_expressions):
        yield from _label_faults(requirement, f"nodeSelectorTerms{index}.matchExpressions[{position}]")
    for position, requirement in enumerate(term.match_fields):
        path = f"nodeSelectorTerms{index}.matchFields[{position}]"
        if requirement.operator not in ("In", "NotIn"):
            yield f'{path}.operator: Unsupported value: "{requirement.operator}": supported values: "In", "NotIn"'
        elif len(requirement.values) != 1:
            yield f"{path}.values: Invalid value: {_json_list(requirement.values)}: must have one element"


def _label_faults(requirement: NodeSelectorRequirement, path: str) -> Iterator[str]:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    supported = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    if operator not in supported:
        choices = ", ".join(f'"{name}"' for name in supported)
        yield f'{path}.operator: Unsupported value: "{operator}": supported values: {choices}'
        return
    yield from (f'{path}.key: Invalid value: "{key}": {fault}' for fault in _key_faults(key))
    if operator in ("In", "NotIn") and not values:
        yield f"{path}.values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    elif operator in ("Exists", "DoesNotExist") and values:
        listed = _json_list(values)
        yield f"{path}.values: Invalid value: {listed}: values set must be empty for exists and does not exist"
    elif operator in ("Gt", "Lt") and len(values) != 1:
        listed = _json_list(values)
        yield f"{path}.values: Invalid value: {listed}: for 'Gt', 'Lt' operators, exactly one value is required"
    elif operator in ("Gt", "Lt") and _int64(values[0]) is None:
        yield (
            f'{path}.values[0]: Invalid value: "{values[0]}": for \'Gt\', \'Lt\' operators, '
            "the value must be an integer"
        )
    for position, value in enumerate(values):
        where = f'{path}.values[{position}][{key}]: Invalid value: "{value}"'
        if len(value) > 63:
            yield f"{where}: must be no more than 63 characters"
        elif value and not _LABEL_NAME.fullmatch(value):
            yield f"{where}: {_VALUE_RULE}"


def _key_faults(key: str) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        yield f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash and not _DNS_NAME.fullmatch(prefix):
        yield f"prefix part {_PREFIX_RULE}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 characters"
    if not _LABEL_NAME.fullmatch(name):
        yield f"name part {_NAME_RULE}"


def _json_list(values: Sequence[str]) -> str:
    return "[" + ",".join(f'"{value}"' for value in values) + "]"


def _dump(selector: NodeSelector) -> str:
    """The selector as Go's generated String method prints it; part of the error text."""
    terms = "".join(
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{"
        f"{_dump_requirements(term.match_expressions)}}},MatchFields:[]NodeSelectorRequirement{{"
        f"{_dump_requirements(term.match_fields)}}},}},"
        for term in selector.node_selector_terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _dump_requirements(requirements: Sequence[NodeSelectorRequirement]) -> str:
    return "".join(
        f"NodeSelectorRequirement{{Key:{x.key},Operator:{x.operator},Values:[{' '.join(x.values)}],}},"
        for x in requirements
    )
