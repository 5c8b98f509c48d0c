"""YAML as upstream parses it; the expected values are from `kubectl label --local -f FILE -o json` (1.32)."""

import json
from typing import Any

import pytest

from resourceapi.manifests import ManifestError, read_documents, read_yaml
from resourceapi.objects.json_value import MAX_DEPTH, canonical


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[y, n, Yes, on, OFF, true]", "[true,false,true,true,false,true]"),
        ('[~, null, Null, "", \'y\', "1"]', '[null,null,null,"","y","1"]'),
        ("[2026-01-01, 2026-01-01T00:00:00Z, 1:59]", '["2026-01-01","2026-01-01T00:00:00Z","1:59"]'),
        ("[0777, 08, 0o17, 0x1F, 0b11, +1, -0b1, 1_000, _1, 0o8]", '[511,8,15,31,3,1,-1,1000,"_1","0o8"]'),
        ("[1e3, 1.5e3, .5, 5., 0.1, -0, 1.0, 1e20, 0777.5]", "[1000,1500,0.5,5,0.1,0,1,100000000000000000000,777.5]"),
        ("[1e400, 0x1FFFFFFFFFFFFFFFF, 0b2, ++1, inf, NaN]", '["1e400","0x1FFFFFFFFFFFFFFFF","0b2","++1","inf","NaN"]'),
        ("[!!str 1, !!int 5, !!float 3, !!binary aGk=, =]", '["1",5,3,"hi","="]'),
        ("{1: a, 1.5: b, true: c, 0x10: d, 2026-01-01: e}", '{"1":"a","1.5":"b","true":"c","16":"d","2026-01-01":"e"}'),
        ("b: &b {k: v, l: w}\nc: {k: 1, <<: *b, l: 2}", '{"b":{"k":"v","l":"w"},"c":{"k":"v","l":2}}'),
        ("b: &b {k: v}\nd: {<<: [*b, {z: 1, k: 9}]}\ne: *b", '{"b":{"k":"v"},"d":{"k":"v","z":1},"e":{"k":"v"}}'),
        ("a: 1\n--- \nb: 2", '{"a":1}'),
        ("# nothing", "null"),
    ],
)
def test_yaml_is_parsed_like_upstream(text: str, answer: str) -> None:
    assert canonical(read_yaml(text)) == canonical(json.loads(answer))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x: .inf", r"unsupported value: \+Inf"),
        ("~: b", "unsupported map key of type: <nil>"),
        ("x: *u", "unknown anchor 'u' referenced"),
        ("&a [*a]", "anchor 'a' value contains itself"),
        ("a: b: c", "line 1: mapping values are not allowed in this context"),
        ("a: !!int x", "cannot decode !!str `x` as a !!int"),
        ("a: !!python/object:os.system x", "the tag .* is not supported"),
        ("[a", "line 1: did not find expected ',' or ']'"),
        ("{<<: 3}", "map merge requires map or sequence of maps as the value"),
    ],
)
def test_invalid_yaml_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ManifestError, match=reason):
        read_yaml(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000])
def test_deep_yaml_is_refused(text: str) -> None:
    """100,000 brackets crash a recursive parser with a segmentation fault."""
    with pytest.raises(ManifestError, match="exceeded max"):
        read_yaml(text)


def test_depth_limit_includes_aliases() -> None:
    read_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    half = "a: &a " + "[" * (MAX_DEPTH // 2) + "]" * (MAX_DEPTH // 2) + "\nb: "
    read_yaml(half + "[" * (MAX_DEPTH // 2 - 1) + "*a" + "]" * (MAX_DEPTH // 2 - 1))
    with pytest.raises(ManifestError, match="exceeded max"):
        read_yaml(half + "[" * (MAX_DEPTH // 2 + 1) + "*a" + "]" * (MAX_DEPTH // 2 + 1))


def aliases(levels: int) -> str:
    """A text of 50 bytes per level. Each level multiplies the expanded size by ten."""
    rest = (f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels))
    return "\n".join(["a0: &a0 [x,x,x,x,x,x,x,x,x,x]", *rest])


def test_excessive_aliasing_is_refused() -> None:
    value = read_yaml(aliases(4))
    assert value["a3"][9][9][9] == ["x"] * 10
    with pytest.raises(ManifestError, match="excessive aliasing"):
        read_yaml(aliases(8))
    with pytest.raises(ManifestError, match="excessive aliasing"):
        read_yaml(f"a: &a {'x' * 600_000}\nb: [*a, *a]")


def test_long_numbers_are_read_as_text() -> None:
    """YAML 1.1 reads 1:59:59 in base 60, which takes quadratic time in the length."""
    text = "1" + ":59" * 100_000
    assert read_yaml(text) == text
    digits = "9" * 10_000
    assert read_yaml(digits) == digits


def test_duplicate_keys_are_kept_in_pairs() -> None:
    value: Any = read_yaml("a: 1\na: 2")
    assert value == {"a": 2}
    assert value.pairs == [("a", 1), ("a", 2)]


def test_each_yaml_document_is_read() -> None:
    assert read_documents("a: 1\n---\n---\n[2]\n") == [{"a": 1}, None, [2]]
    with pytest.raises(ManifestError):
        read_documents("a: 1\n---\n[")
