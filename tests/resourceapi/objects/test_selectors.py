"""Label, field and node selectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resourceapi.objects import from_dict
from resourceapi.objects.core import Node, NodeSelector
from resourceapi.objects.meta import ObjectMeta
from resourceapi.objects.selectors import (
    NodeMatcher,
    Requirement,
    SelectorError,
    node_matches,
    parse_field_selector,
    parse_label_selector,
)

LABELS = {"app": "db", "zone": "a", "size": "10", "empty": "", "in": "in"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("  ", True),
        ("app", True),
        ("!app", False),
        ("nope", False),
        ("!nope", True),
        ("app=db", True),
        ("app==db,zone=a", True),
        ("app==db,zone=b", False),
        ("app!=web", True),
        ("nope!=web", True),
        ("nope=web", False),
        ("empty=", True),
        ("empty=,app", True),
        ("app in (web, db)", True),
        ("app notin (web,db)", False),
        ("nope notin (web)", True),
        ("nope in (web)", False),
        ("empty in ()", True),
        ("empty in (,x)", True),
        ("in in (in)", True),
        ("size>9", True),
        ("size > 10", False),
        ("size<11", True),
        ("app>1", False),
        ("nope>1", False),
        (" app = db , ! nope ", True),
    ],
)
def test_label_selector_matches_labels(text: str, matches: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is matches


def test_label_requirements_and_values_are_sorted() -> None:
    assert parse_label_selector("b in (y,,x),a").requirements == (
        Requirement("a", "Exists"),
        Requirement("b", "In", ("", "x", "y")),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators,"
            " the value must be an integer",
        ),
    ],
)
def test_malformed_label_selector_is_refused(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as raised:
        parse_label_selector(text)
    assert str(raised.value) == message


def test_invalid_label_key_or_value_is_refused() -> None:
    with pytest.raises(
        SelectorError, match=r'^unable to parse requirement: <nil>: Invalid value: "-a": name part must'
    ):
        parse_label_selector("-a")
    with pytest.raises(
        SelectorError, match=r'^unable to parse requirement: values\[0\]\[a\]: Invalid value: "-": a valid'
    ):
        parse_label_selector("a=-")


@given(st.text(alphabet="ab=!<>(), in", max_size=30))
def test_any_text_is_parsed_as_label_selector_or_refused(text: str) -> None:
    try:
        parse_label_selector(text).matches(LABELS)
    except SelectorError:
        return


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        (",", True),
        ("!=", True),
        ("metadata.name=x", True),
        ("metadata.name==x", True),
        ("metadata.name!=x", False),
        ("metadata.name=x,spec.driver!=y", True),
        ("spec.driver=", True),
        (r"other=a\,b\=c\\d", True),
        ("metadata.name=X", False),
    ],
)
def test_field_selector_matches_fields(text: str, matches: bool) -> None:
    fields = {"metadata.name": "x", "other": r"a,b=c\d"}
    assert parse_field_selector(text).matches(fields) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_malformed_field_selector_is_refused(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as raised:
        parse_field_selector(text)
    assert str(raised.value) == message


NODE = Node(metadata=ObjectMeta(name="node-1", labels=LABELS))


def selector(*terms: dict[str, object]) -> NodeSelector:
    return from_dict(NodeSelector, {"nodeSelectorTerms": list(terms)})


def expression(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        ({}, False),
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("nope", "In", ""), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("nope", "NotIn", "b"), True),
        (expression("zone", "Exists"), True),
        (expression("nope", "Exists"), False),
        (expression("nope", "DoesNotExist"), True),
        (expression("size", "Gt", "9"), True),
        (expression("size", "Lt", "9"), False),
        (expression("zone", "Gt", "9"), False),
        (expression("nope", "Lt", "9"), False),
        (field("metadata.name", "In", "node-1"), True),
        (field("metadata.name", "NotIn", "node-1"), False),
        (field("metadata.other", "In", "x"), False),
        (field("metadata.other", "NotIn", "x"), True),
        (expression("zone", "Exists") | field("metadata.name", "In", "node-2"), False),
    ],
)
def test_node_selector_term_matches_labels_and_fields(term: dict[str, object], matches: bool) -> None:
    assert node_matches(selector(term), NODE) is matches


def test_node_selector_matches_if_any_term_matches() -> None:
    alternatives = selector(expression("zone", "In", "b"), {}, expression("zone", "In", "a"))
    assert node_matches(alternatives, NODE)
    assert not node_matches(alternatives, None)
    assert not node_matches(selector(), NODE)


def test_field_term_matches_node_without_name() -> None:
    assert node_matches(selector(field("metadata.name", "In", "x")), Node())


def test_node_selector_error_lists_every_invalid_term() -> None:
    bad = selector(
        expression("zone", "Exists"),
        expression("zone", "Near", "a"),
        expression("zone", "In"),
        expression("zone", "Exists", "a"),
        expression("zone", "Gt", "x"),
        field("metadata.name", "Exists"),
        field("metadata.name", "In", "a", "b"),
    )
    with pytest.raises(SelectorError) as raised:
        NodeMatcher(bad)
    assert str(raised.value) == (
        '[nodeSelectorTerms[1].matchExpressions[0].operator: Unsupported value: "Near": supported values: "In",'
        ' "NotIn", "Exists", "DoesNotExist", "Gt", "Lt",'
        " nodeSelectorTerms[2].matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators, values set"
        " can't be empty,"
        ' nodeSelectorTerms[3].matchExpressions[0].values: Invalid value: ["a"]: values set must be empty for exists'
        " and does not exist,"
        " nodeSelectorTerms[4].matchExpressions[0].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value"
        " must be an integer,"
        ' nodeSelectorTerms[5].matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn",'
        ' nodeSelectorTerms[6].matchFields[0].values: Invalid value: ["a","b"]: must have one element]'
    )
