"""For any expression, only our own errors occur, and printing it does not change it."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from resourceapi.cel import CelError, base_environment, compile_expression, compile_selector, device_environment
from resourceapi.cel.ast import Call, Entry, FieldInit, Literal, Node
from resourceapi.cel.device import device_bounds
from resourceapi.cel.errors import Issues
from resourceapi.cel.estimate import Bounds
from tests.cases.unparse import parse_as_written, unparse
from tests.resourceapi.cel.devices import ATTRIBUTES, CAPACITY, device, versions

VIEW = device(
    {"s": "fish", "n": 3, "b": True, "v": versions("1.2.3")[0], "l": [1, 2], "t": ["a"]},
    {"memory": "1Gi", "x.y/z": "5"},
)
_TOKENS = r"""
1 -1 0 2u 1.5 'a' "b" b'c' r'd' true false null x device int [ ] { } ( ) , . ? : && || ! - + * / % == != < <= > >= in
[1,2] {'a':1} dyn(1) quantity('1Gi') semver('1.2.3') optional.of(1) duration('1h') size has all exists map filter
cel.bind matches contains startsWith split join format orValue includes sort sum value $ ` ' \ é //
"""
TOKENS = [*_TOKENS.split(), "\n"]
_ATOMS = """
1 0 -1 2u 1.5 'a' '' b'x' true false null [] {} [1,2] [3,1] {'a':1} dyn(1) dyn('a') dyn([1]) quantity('1Ki') x type(1)
semver('1.2.3') optional.of(1) optional.none() duration('1h') timestamp(0) ip('::1') cidr('10.0.0.0/8')
"""
ATOMS = _ATOMS.split()
DEVICE_ATOMS = [f"{ATTRIBUTES}.{name}" for name in "snbvlt"] + [
    f"{ATTRIBUTES}.nothing",
    f"{ATTRIBUTES}.?s",
    f"{CAPACITY}.memory",
    "device.driver",
    "device.attributes",
    "device",
]
_UNARY = """
!{} -{} ({}) [{}] size({}) string({}) int({}) dyn({}) type({}) quantity({}) {}.size() {}.sort() {}.sum() {}.a {}.?a
has({}.a) {}.trim() {}.distinct() {}.value() {}.hasValue() {}[0] {}.max() {}.join() [?{}] {}.flatten() {}.major()
"""
UNARY = _UNARY.split()
_BINARY = """
{}+{} {}-{} {}*{} {}/{} {}%{} {}=={} {}!={} {}<{} {}>={} {}in{} {}&&{} {}||{} {}[{}] {}[?{}] {}.contains({})
{}.matches({}) {}.split({}) {}.orValue({}) {}.includes({}) {}.compareTo({}) {}.exists(x,{}) {}.all(x,{}) {}.map(x,{})
{}.filter(x,{}) {}.transformList(i,x,{}) {}.transformMap(i,x,{}) cel.bind(x,{},{}) {}.optMap(x,{}) {}.sortBy(x,{})
'%s-%d'.format([{},{}]) {{{}:{}}} sets.contains({},{}) {}.indexOf({})
"""
BINARY = _BINARY.split()


def _combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    unary = st.builds(lambda form, a: form.format(f"({a})"), st.sampled_from(UNARY), inner)
    binary = st.builds(lambda form, a, b: form.format(f"({a})", f"({b})"), st.sampled_from(BINARY), inner, inner)
    ternary = st.builds(lambda a, b, c: f"({a}) ? ({b}) : ({c})", inner, inner, inner)
    return unary | binary | ternary


EXPRESSIONS = st.recursive(st.sampled_from(ATOMS), _combine, max_leaves=6)
SELECTORS = st.recursive(st.sampled_from(ATOMS + DEVICE_ATOMS), _combine, max_leaves=6)


@given(st.lists(st.sampled_from(TOKENS), max_size=12))
def test_any_token_sequence_is_evaluated_or_a_cel_error(tokens: list[str]) -> None:
    with contextlib.suppress(CelError):
        compile_expression(" ".join(tokens), base_environment()).evaluate()


@given(st.text(max_size=30))
def test_any_text_is_evaluated_or_a_cel_error(text: str) -> None:
    with contextlib.suppress(CelError):
        compile_expression(text, base_environment()).evaluate()


@given(EXPRESSIONS)
def test_any_generated_expression_is_evaluated_or_a_cel_error(source: str) -> None:
    with contextlib.suppress(CelError):
        compile_expression(source, base_environment()).evaluate(limit=10_000)


@given(SELECTORS, st.booleans(), st.booleans())
def test_cost_of_any_selector_is_within_its_estimate(source: str, stored: bool, gates: bool) -> None:
    environment = device_environment(stored=stored, consumable_capacity=gates, list_type_attributes=gates)
    try:
        selector = compile_selector(source, environment)
        _, cost = selector.evaluate_device(VIEW)
    except CelError:
        return
    assert cost <= selector.estimate(_visible(device_bounds(environment)))


def _visible(bounds: Bounds) -> Bounds:
    """The bounds with sizes of at least one. Upstream estimates no size for devices and quantities, but charges one."""
    key, element = (each and _visible(each) for each in (bounds.key, bounds.element))
    fields = {name: _visible(each) for name, each in bounds.fields.items()}
    return Bounds(max(bounds.size, 1), fields, key, element, bounds.is_attribute)


@given(EXPRESSIONS)
def test_printed_expression_parses_to_same_tree(source: str) -> None:
    issues = Issues(source)
    tree = parse_as_written(source, base_environment().macros, issues)
    if issues:
        return
    text = unparse(tree)
    reparsed = parse_as_written(text, base_environment().macros, issues := Issues(text))
    assert not issues, issues.text()
    assert _shape(reparsed.root) == _shape(tree.root)
    assert unparse(reparsed) == text


def _shape(node: Any) -> Any:
    """A tree without source positions."""
    if isinstance(node, Literal):
        return type(node.value).__name__, repr(node.value)
    if isinstance(node, Call):
        return "call", node.function, _shape(node.target), _shape(node.args)
    if isinstance(node, list):
        return [_shape(each) for each in node]
    if isinstance(node, Node | Entry | FieldInit):
        names = [name for kind in type(node).__mro__ for name in getattr(kind, "__slots__", ())]
        return type(node).__name__, [
            _shape(getattr(node, name)) for name in sorted(names) if name not in ("position", "type", "height")
        ]
    return node


def test_comprehension_is_printed_as_its_macro() -> None:
    source = "[1, 2].map(x, x > 1, -(1) + x).exists(y, has({}.a) || y in [2]) ? {'a b': 1}.`a b` : 1u"
    tree = parse_as_written(source, base_environment().macros, Issues(source))
    assert len(tree.macro_calls) == 3
    assert unparse(tree) == source.replace("'", '"')


def test_printing_keeps_grouping_of_operators() -> None:
    source = "1 == 1 && (true && true)"
    assert unparse(parse_as_written(source, base_environment().macros, Issues(source))) == source
