"""Semantic versions: parsing with upstream's messages, precedence, and their CEL functions."""

from itertools import pairwise

import pytest

from resourceapi.cel import (
    CelCompileError,
    CelEvalError,
    Environment,
    Semver,
    SemverError,
    compile_expression,
    device_environment,
)

NEW_1_31 = device_environment((1, 31), stored=False)
STORED = device_environment()


def test_versions_are_ordered_by_precedence() -> None:
    ascending = [
        "1.0.0-1",
        "1.0.0-2",
        "1.0.0-10",
        "1.0.0-a",
        "1.0.0-a.1",
        "1.0.0-b",
        "1.0.0",
        "1.0.1",
        "1.10.0",
        "2.0.0",
    ]
    parsed = [Semver.parse(text) for text in ascending]
    assert all(lower < higher and higher > lower for lower, higher in pairwise(parsed))
    assert [str(each) for each in parsed] == ascending
    assert Semver.parse("1.0.0+a") == Semver.parse("1.0.0+b")
    assert hash(Semver.parse("1.0.0+a")) == hash(Semver.parse("1.0.0"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Version string empty"),
        ("1.0", "No Major.Minor.Patch elements found"),
        ("v1.0.0", 'Invalid character(s) found in major number "v1"'),
        ("1.b.0", 'Invalid character(s) found in minor number "b"'),
        ("01.0.0", 'Major number must not contain leading zeroes "01"'),
        ("1.0.00", 'Patch number must not contain leading zeroes "00"'),
        (".0.0", 'strconv.ParseUint: parsing "": invalid syntax'),
        ("1.0.0-", "Prerelease is empty"),
        ("1.0.0-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.0.0-a_b", 'Invalid character(s) found in prerelease "a_b"'),
        ("1.0.0+", "Build meta data is empty"),
        ("1.0.0+a_b", 'Invalid character(s) found in build meta data "a_b"'),
        ("18446744073709551616.0.0", 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
    ],
)
def test_malformed_version_is_refused(text: str, message: str) -> None:
    with pytest.raises(SemverError) as raised:
        Semver.parse(text)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "expected"), [("v1.0.0", "1.0.0"), ("01.01.01", "1.1.1"), ("1", "1.0.0"), ("v1.00", "1.0.0")]
)
def test_tolerant_parsing_accepts_prefix_zeros_and_missing_parts(text: str, expected: str) -> None:
    assert str(Semver.parse_tolerant(text)) == expected


@pytest.mark.parametrize("text", ["", " 1.0.0", "1. 0.0", "1.0.0 ", "1-a", "vv1"])
def test_tolerant_parsing_refuses_spaces_and_other_prefixes(text: str) -> None:
    with pytest.raises(SemverError):
        Semver.parse_tolerant(text)


@pytest.mark.parametrize("environment", [NEW_1_31, STORED], ids=["1.31", "stored"])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('string(semver("1.2.3").major()) + "." + string(semver("1.2.3").minor())', "1.2"),
        ('semver("1.2.3").patch()', 3),
        ('isSemver("1.2.3-beta.1+build.1")', True),
        ('["", "v1.0", "v1.0.0", " 1.0.0", "1. 0.0", "1.0.0 ", "01.01.01", "1", "1.1"].exists(v, isSemver(v))', False),
        ('semver("1.2.3") == semver("1.2.3")', True),
        ('semver("1.2.3") == semver("1.0.0")', False),
        ('semver("1.2.3") != semver("1.0.0")', True),
        ('semver("1.0.0").isLessThan(semver("1.2.3"))', True),
        ('semver("1.2.3").isLessThan(semver("1.2.3"))', False),
        ('semver("1.2.3").isGreaterThan(semver("1.0.0"))', True),
        ('semver("1.2.3").isGreaterThan(semver("1.2.3"))', False),
        ('semver("1.2.3").compareTo(semver("1.2.3"))', 0),
        ('semver("1.0.0").compareTo(semver("1.2.3"))', -1),
        ('semver("1.2.3").compareTo(semver("1.0.0"))', 1),
    ],
)
def test_semver_functions_have_results(source: str, expected: object, environment: Environment) -> None:
    value, _ = compile_expression(source, environment).evaluate()
    assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('["v1.0.0", "01.01.01", "1", "1.1"].all(v, isSemver(v, true))', True),
        ('["", " 1.0.0", "1. 0.0", "1.0.0 "].exists(v, isSemver(v, true))', False),
        ('isSemver("v1.0.0", false)', False),
        ('semver("v01.01", true) == semver("1.1.0")', True),
    ],
)
def test_tolerant_semver_functions_need_newer_release(source: str, expected: bool) -> None:
    assert compile_expression(source, STORED).evaluate()[0] is expected
    with pytest.raises(CelCompileError, match=r"found no matching overload for '(is)?[sS]emver' applied to '"):
        compile_expression(source, NEW_1_31)


@pytest.mark.parametrize("environment", [NEW_1_31, STORED], ids=["1.31", "stored"])
def test_invalid_semver_arguments_are_errors(environment: Environment) -> None:
    with pytest.raises(CelEvalError, match=r"^No Major\.Minor\.Patch elements found$"):
        compile_expression('semver("v1.0")', environment).evaluate()
    with pytest.raises(
        CelCompileError, match=r"found no matching overload for 'isSemver' applied to '\(list\(int\)\)'"
    ):
        compile_expression("isSemver([1, 2, 3])", environment)
