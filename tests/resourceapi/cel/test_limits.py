"""No text of up to 10 KiB can exhaust stack, time or memory."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from resourceapi.cel import (
    CelCompileError,
    CelEvalError,
    CostLimitExceeded,
    base_environment,
    compile_expression,
    compile_selector,
    device_environment,
)
from resourceapi.cel.estimate import UNLIMITED, Bounds


def run(source: str) -> object:
    expression = compile_expression(source, base_environment())
    expression.estimate(Bounds(0))
    return expression.evaluate()[0]


def nested(before: str, middle: str, after: str, depth: int) -> str:
    return before * depth + middle + after * depth


@pytest.mark.parametrize(
    "source",
    [
        nested("(", "1 == 1", ")", 248),
        nested("!(", "true", ")", 248),
        nested("[1].all(x, ", "true", ")", 120),
        f"{nested('[', '1', ']', 240)} == {nested('[', '1', ']', 240)}",
        f"{nested('[1].map(x, ', '1', ')', 200)}.size() == 1",
        f"{nested('cel.bind(a, 1, ', 'a', ')', 240)} == 1",
        "1" + " + 1" * 248 + " == 249",
        "true" + " && true" * 1200,
        "!" * 10_000 + "true",
    ],
)
def test_what_upstream_accepts_is_evaluated(source: str) -> None:
    before = sys.getrecursionlimit()
    assert run(source) is True
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    "source",
    [
        nested("(", "1", ")", 5000),
        nested("[", "1", "]", 5000),
        nested("{1: ", "1", "}", 1800),
        "a" + ".b" * 5000,
        "1" + "+1" * 5000,
        "true ? 1 : " * 900 + "1",
        "optional.of(1)" + ".optMap(x, x)" * 200,
    ],
)
def test_deeper_nesting_is_refused(source: str) -> None:
    with pytest.raises(CelCompileError, match=r"recursion|too large"):
        run(source)


@pytest.mark.parametrize(
    "source",
    [
        "lists.range(1000000).map(x, x).size()",
        "lists.range(100000).distinct().size()",
        "lists.range(1000).map(x, lists.range(1000).map(y, lists.range(1000)))",
        "".join(f"cel.bind(a{i}, a{i - 1} + a{i - 1}, " for i in range(1, 100)).replace("a0", "'aa'")
        + "a99"
        + ")" * 99,
    ],
)
def test_unaffordable_work_is_not_begun(source: str) -> None:
    with pytest.raises(CostLimitExceeded):
        run(source)


def test_a_list_that_doubles_is_stopped() -> None:
    source = "".join(f"cel.bind(a{i}, a{i - 1} + a{i - 1}, " for i in range(1, 100)).replace("a0", "[1, 2]")
    with pytest.raises(CelEvalError, match="value is too large"):
        run(f"{source}a99.size(){')' * 99}")


@pytest.mark.parametrize("pattern", ["(a+)+$b", "a*a*a*a*a*b", "(a|aa)*b", "(.*)(.*)(.*)x", "(a?){30}a{30}b"])
def test_no_pattern_backtracks(pattern: str) -> None:
    assert run(f"'{'a' * 5000}'.matches('{pattern}')") is False


def test_an_estimate_stops_at_the_largest_number() -> None:
    source = nested("lists.range(1000000).all(x, ", "true", ")", 20)
    assert compile_expression(source, base_environment()).estimate(Bounds(0)) == UNLIMITED


@pytest.mark.parametrize("negative", ["lists.range(-1)", "[1, 2].slice(0, -1)", "[1, 2].flatten(-1)"])
def test_a_negative_constant_is_estimated_as_zero(negative: str) -> None:
    sources = [f"{call}.all(x, x > 0)" for call in (negative, negative.replace("-1", "0"))]
    first, second = (compile_expression(source, base_environment()).estimate(Bounds(0)) for source in sources)
    assert first == second < 100


@pytest.mark.parametrize(
    ("source", "most"),
    [
        ("device.attributes['d'].all(k, k == device.driver)", 324),
        ("device.attributes['d'].all(k, v, k == device.driver)", 420),
        ("device.capacity['d'].all(k, v, k == k)", 164),
        ("device.attributes.all(d, m, m.all(k, k == k && m[k] == 'a'))", 13475),
        ("device.attributes.all(d, m, m.all(k, m[k] == 'a' && k == k))", 16547),
    ],
)
def test_keys_behind_an_index_are_estimated_as_upstream_does(source: str, most: int) -> None:
    """If an expression also uses a map's values, its keys are assumed to be as large as the values."""
    assert compile_selector(source, device_environment()).max_cost == most


@pytest.mark.parametrize(
    "source",
    [
        "{}1 == 1",
        "-{}1 == -1",
        "{}1u == 1u",
        "int('-{}1') == -1",
        "uint('{}1') == 1u",
        "duration('{}1s') == duration('1s')",
        "'%.{}1f'.format([1.5]) == '1.5'",
    ],
)
def test_a_number_may_have_any_number_of_zeros_in_front(source: str) -> None:
    assert run(source.format("0" * 5000)) is True


def test_text_that_is_not_unicode_is_a_syntax_error() -> None:
    with pytest.raises(CelCompileError, match="1:2: Syntax error: the expression is not valid Unicode"):
        run("'\ud800'")


def test_deep_expressions_in_two_threads() -> None:
    """The recursion limit belongs to the process: it is restored when no thread needs it."""
    before = sys.getrecursionlimit()
    deep, shallower = nested("[1].all(x, ", "true", ")", 120), nested("[1].all(x, ", "true", ")", 90)
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, [deep, shallower] * 6))
    assert sys.getrecursionlimit() == before


def test_conversions_of_message_literals_are_limited() -> None:
    """Their cost does not depend on the list's length, but each one converts the whole list."""
    source = f"cel.bind(l, [{', '.join(['1'] * 300)}], l.all(x, google.protobuf.ListValue{{values: l}} != []))"
    expression = compile_expression(source, base_environment())
    value, cost = expression.evaluate(limit=90_000)
    assert value is True
    assert cost < 20_000
    with pytest.raises(CostLimitExceeded):
        expression.evaluate(limit=89_999)
