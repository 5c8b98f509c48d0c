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
def test_deepest_expressions_that_upstream_accepts_are_evaluated(source: str) -> None:
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
def test_deeper_nesting_is_a_compile_error(source: str) -> None:
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
def test_expensive_expression_exceeds_cost_limit(source: str) -> None:
    with pytest.raises(CostLimitExceeded):
        run(source)


def test_repeatedly_doubled_list_is_too_large() -> None:
    source = "".join(f"cel.bind(a{i}, a{i - 1} + a{i - 1}, " for i in range(1, 100)).replace("a0", "[1, 2]")
    with pytest.raises(CelEvalError, match="value is too large"):
        run(f"{source}a99.size(){')' * 99}")


@pytest.mark.parametrize("pattern", ["(a+)+$b", "a*a*a*a*a*b", "(a|aa)*b", "(.*)(.*)(.*)x", "(a?){30}a{30}b"])
def test_pattern_matching_does_not_backtrack(pattern: str) -> None:
    assert run(f"'{'a' * 5000}'.matches('{pattern}')") is False


def test_cost_estimate_is_capped_at_maximum() -> None:
    source = nested("lists.range(1000000).all(x, ", "true", ")", 20)
    assert compile_expression(source, base_environment()).estimate(Bounds(0)) == UNLIMITED


@pytest.mark.parametrize("negative", ["lists.range(-1)", "[1, 2].slice(0, -1)", "[1, 2].flatten(-1)"])
def test_negative_constant_is_estimated_as_zero(negative: str) -> None:
    sources = [f"{call}.all(x, x > 0)" for call in (negative, negative.replace("-1", "0"))]
    first, second = (compile_expression(source, base_environment()).estimate(Bounds(0)) for source in sources)
    assert first == second < 100


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("device.attributes['d'].all(k, k == device.driver)", 324),
        ("device.attributes['d'].all(k, v, k == device.driver)", 420),
        ("device.capacity['d'].all(k, v, k == k)", 164),
        ("device.attributes.all(d, m, m.all(k, k == k && m[k] == 'a'))", 13475),
        ("device.attributes.all(d, m, m.all(k, m[k] == 'a' && k == k))", 16547),
    ],
)
def test_map_keys_are_estimated_like_upstream(source: str, expected: int) -> None:
    """If an expression also uses a map's values, its keys are assumed to be as large as the values."""
    assert compile_selector(source, device_environment()).max_cost == expected


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
def test_leading_zeros_of_numbers_are_unlimited(source: str) -> None:
    assert run(source.format("0" * 5000)) is True


def test_invalid_unicode_is_a_syntax_error() -> None:
    with pytest.raises(CelCompileError, match="1:2: Syntax error: the expression is not valid Unicode"):
        run("'\ud800'")


def test_recursion_limit_is_restored_after_concurrent_deep_expressions() -> None:
    """The recursion limit belongs to the process: it is restored when no thread needs it."""
    before = sys.getrecursionlimit()
    deep, shallower = nested("[1].all(x, ", "true", ")", 120), nested("[1].all(x, ", "true", ")", 90)
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, [deep, shallower] * 6))
    assert sys.getrecursionlimit() == before


def test_message_literal_conversions_count_towards_limit() -> None:
    """Their cost does not depend on the list's length, but each one converts the whole list."""
    source = f"cel.bind(l, [{', '.join(['1'] * 300)}], l.all(x, google.protobuf.ListValue{{values: l}} != []))"
    expression = compile_expression(source, base_environment())
    value, cost = expression.evaluate(limit=90_000)
    assert value is True
    assert cost < 20_000
    with pytest.raises(CostLimitExceeded):
        expression.evaluate(limit=89_999)
