"""Regular expressions: RE2's syntax, Go's messages and Go's matches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resourceapi.cel.re2 import RegexError, RegexTooExpensive, compile_regex, find_all


def all_matches(pattern: str, text: str) -> list[str]:
    return [text[start:end] for start, end in find_all(compile_regex(pattern), text)]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a|ab", "abab", ["a", "a"]),
        ("(?:ab){2}", "ababab", ["abab"]),
        ("a*?b", "aab", ["aab"]),
        ("x*", "axb", ["", "x", ""]),
        ("", "ab", ["", "", ""]),
        ("^a$", "a\n", []),
        ("(?m)^.$", "a\nb", ["a", "b"]),
        ("a.b", "a\nb", []),
        ("(?s)a.b", "a\nb", ["a\nb"]),
        ("(?i)straße", "STRAßE", ["STRAßE"]),
        ("(?i)k", "K\u212a", ["K", "\u212a"]),
        (r"\w+", "héllo", ["h", "llo"]),
        (r"\pL+", "héllo 1", ["héllo"]),
        (r"\p{Greek}+", "αβ ab", ["αβ"]),
        (r"[[:alpha:]][^[:alpha:]]", "a1b", ["a1"]),
        (r"[]a\-]+", "]-a", ["]-a"]),
        (r"\Qa.b\E", "axb a.b", ["a.b"]),
        (r"\bc", "abc c", ["c"]),
        (r"(?U)a+", "aaa", ["a", "a", "a"]),
        (r"(a|ab)(c|bcd)(d*)", "abcd", ["abcd"]),
        (r"(?P<n>a)\x{62}\143", "abc", ["abc"]),
        ("a{,2}", "a{,2}", ["a{,2}"]),
        ("a{02}", "aa a{02}", ["a{02}"]),
        ("(a+)+b", "xaab", ["aab"]),
        ("(|a)*x", "aax", ["aax"]),
        ("((|a))+", "a", ["", ""]),
        ("(a*?)*", "aa", ["", "", ""]),
        (r"[0-9-\pL]+", "1-b.", ["1-b"]),
        (r"[\d-x]+", "1-xa", ["1-x"]),
        ("[a-c-e]+", "b-d-e", ["b-", "-e"]),
    ],
)
def test_pattern_finds_all_matches(pattern: str, text: str, expected: list[str]) -> None:
    assert all_matches(pattern, text) == expected
    assert compile_regex(pattern).is_match(text) is bool(expected)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        (r"\x{}", r"invalid escape sequence: `\x{}`"),
        (r"\x(a", r"invalid escape sequence: `\x(a`"),
        (r"\x4", r"invalid escape sequence: `\x4`"),
        ("\\", "trailing backslash at end of expression: ``"),
        (r"\pX", r"invalid character class range: `\pX`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("(" * 1001, "expression nests too deeply: `"),
    ],
)
def test_invalid_pattern_is_refused_with_reason(pattern: str, problem: str) -> None:
    with pytest.raises(RegexError) as raised:
        compile_regex(pattern)
    assert str(raised.value).startswith(f"error parsing regexp: {problem}")


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a?" * 30 + "a" * 30, "a" * 30, True),
        ("(ab|a|b)" * 30 + "c", "ab" * 30, False),
        ("(a?b?)*c", "ab" * 50, False),
        ("^(a+)+$", "a" * 40 + "b", False),
        ("(a|a)" * 40 + "b", "a" * 41, False),
        ("a*b", "a" * 200_000, False),
    ],
)
def test_matching_takes_linear_time(pattern: str, text: str, expected: bool) -> None:
    """A backtracking engine would need hours."""
    assert compile_regex(pattern).is_match(text) is expected


@pytest.mark.parametrize(("pattern", "text"), [("a*b|a", "a" * 10_000), (r"(\b|\B){1000}x", "ab" * 10_000)])
def test_expensive_search_is_ended_by_its_budget(pattern: str, text: str) -> None:
    """All matches of a search share one budget."""
    with pytest.raises(RegexTooExpensive):
        list(find_all(compile_regex(pattern), text))


@given(st.from_regex(r"([ab]|\(a\|b\)|\(ab\)){1,6}([?*+]|\{1,3\})?c?", fullmatch=True), st.text("abc", max_size=12))
def test_engines_for_short_and_long_texts_agree(pattern: str, text: str) -> None:
    """There is one engine for short texts and one for long texts. The appended characters cannot match."""
    matcher = compile_regex(f"(?:{pattern})")
    long_text = text + "\0" * 1001
    assert matcher.find(text) == matcher.find(long_text)
    assert matcher.is_match(text) is matcher.is_match(long_text)
