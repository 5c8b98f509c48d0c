"""Files that are no valid YAML for us: one finding with its place."""

import os
from pathlib import Path

import pytest

from nodeplug.config import ConfigError, read
from nodeplug.config.tree import DEPTH_LIMIT, SIZE_LIMIT, Mapping, Scalar, Sequence, Unreadable, parse, parse_several


def test_nodes_have_their_place_and_quoting() -> None:
    root, twice = parse(b"a: [b, 'c']\n'd': |\n  e\n")
    assert root == Mapping(
        (
            (Scalar("a", True, 1, 1), Sequence((Scalar("b", True, 1, 5), Scalar("c", False, 1, 8)), 1, 4)),
            (Scalar("d", False, 2, 1), Scalar("e\n", False, 2, 6)),
        ),
        1,
        1,
    )
    assert twice == []


def test_duplicate_key_is_reported_and_the_first_is_used() -> None:
    root, (finding,) = parse(b"a: 1\nb: {c: 1,\n c: 2}\n")
    assert isinstance(root, Mapping)
    assert root.entries[1][1] == Mapping(((Scalar("c", True, 2, 5), Scalar("1", True, 2, 8)),), 2, 4)
    assert (finding.line, finding.column, finding.hint) == (3, 2, "the first is in line 2")
    assert finding.message == "the key c appears twice"


def test_several_documents_keep_their_places() -> None:
    roots, twice = parse_several(b"---\n# nothing\n---\na: 1\na: 2\n---\n- a\n")
    assert roots == [
        Mapping(((Scalar("a", True, 4, 1), Scalar("1", True, 4, 4)),), 4, 1),
        Sequence((Scalar("a", True, 7, 3),), 7, 1),
    ]
    assert [x.line for x in twice] == [5]
    with pytest.raises(Unreadable, match=r"the file is empty$"):
        parse_several(b"---\n---\n")


@pytest.mark.parametrize(
    ("data", "line", "column", "message"),
    [
        (b"", 1, 1, "the file is empty"),
        (b"# nothing\n", 1, 1, "the file is empty"),
        (b"a: 1\nb: [c,\n", 3, 1, r"this is not YAML: the \[ in line 2 is not closed"),
        (b"a: 1\nb: [\n", 3, 1, r"this is not YAML: the \[ in line 2 is not closed"),
        (b"a:\n  - {b: [c], d: {e: [f]\n\n", 4, 1, "this is not YAML: the { in line 2 is not closed"),
        (
            b"a:\n  - {b: 1\n  - {b: 2}\n",
            3,
            5,
            "this is not YAML: a comma is missing before this, or a } for the { in line 2",
        ),
        (b"a:\n  - {b: [c, d: e}\n", 2, 17, r"this is not YAML: the \[ in line 2 is not closed"),
        (b'a: {b: "c" d: e}\n', 1, 12, "this is not YAML: a comma is missing before this, or a } for the { in line 1"),
        (b"a: {b: c: d}\n", 1, 9, "this is not YAML: a colon in a value"),
        (b"a: {\n  b: c: d}\n", 2, 7, "this is not YAML: a colon in a value"),
        (b"a: [::1]:80\n", 1, 5, "this is not YAML: a value is missing before :; put a text with brackets, such as an"),
        (b"a: ]\n", 1, 4, "this is not YAML: a value is missing before ]; put a text"),
        (b"a: [b, c\nd: e\n", 2, 2, r"this is not YAML: a comma is missing before d, or a \] for the \[ in line 1"),
        (b"a: {\n  b: 1\n  c: 2}\n", 3, 4, "this is not YAML: a comma is missing before c, or a } for the { in line 1"),
        (b"a: *\n", 1, 5, r"this is not YAML: put a text that begins with \* in quotes"),
        (b"a: */b\n", 1, 5, r"this is not YAML: put a text that begins with \* in quotes"),
        (b"a: [b, @c]\n", 1, 8, "this is not YAML: put a text that begins with @ in quotes"),
        (b"a: %c\n", 1, 4, "this is not YAML: put a text that begins with % in quotes"),
        (b"\xef\xbb\xbf%YAML 1.1\n", 2, 1, "this is not YAML: expected '<document start>'"),
        (b"a:\n\t- b\n", 2, 1, "this is not YAML: a tab; write spaces"),
        (b"a:\n  - b: 1\n   c: 2\n", 3, 4, "this is not YAML: the indentation does not fit what began in line 2"),
        (b"a:\n  - {b: 1\n", 3, 1, "this is not YAML: the { in line 2 is not closed"),
        ("a: 1".encode("utf-16"), 1, 1, "the file is UTF-16; save it as UTF-8"),
        (b"\x1f\x8b\x08\x00", 1, 1, "the file is compressed with gzip, not YAML"),
        (
            b"a:\n- b: 1\n   c: 2\n",
            *(
                3,
                5,
                "this is not YAML: c is indented further than the line before it; line it up with the keys that it",
            ),
        ),
        (b"a: b: c\n", 1, 5, "this is not YAML: a colon in a value"),
        (b"a: 'b\n", 2, 1, "this is not YAML: the quote in line 1 is not closed"),
        (b'a: 1\nb: "c\nd: e\n---\n', 4, 1, "this is not YAML: the quote in line 2 is not closed"),
        (b'a: "\\z"\n', 1, 6, "this is not YAML"),
        (b"%YAML 9.1\n---\na: b\n", 1, 1, "this is not YAML"),
        (b"a: b\nc: \0\n", 2, 4, "the character #x0000 is not allowed"),
        (b"a: b\n\xc3\xa4\xff: c\n", 2, 2, "the byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbfa: b\n\xff\n", 2, 1, "the byte 0xff is not UTF-8"),
        (b"a: b\n---\nc: d\n", 2, 1, "a second document begins here"),
        (b"a: &x [b]\nc: *x\n", 2, 4, "aliases are not supported"),
        (b"a: *usb*\n", 1, 8, r"this is not YAML: put a text that begins with \* in quotes"),
        (b"a: !!python/object:os.system b\n", 1, 4, "the tag .* is not supported"),
        (b"a: !!int '5'\n", 1, 4, "the tag .* is not supported"),
        (b"? [a]\n: b\n", 1, 3, "a key must be a text"),
        (b'a: "\\ud800"\n', 1, 4, "half of a surrogate pair"),
        (b"[" * 100_000, 1, DEPTH_LIMIT + 1, "nested deeper than"),
        (b"- " * 5_000, 1, 2 * DEPTH_LIMIT + 1, "nested deeper than"),
        (b"#" * (SIZE_LIMIT + 1), 1, 1, "the file has more than 512 KiB"),
    ],
)
def test_unsupported_yaml_is_refused_with_its_place(data: bytes, line: int, column: int, message: str) -> None:
    with pytest.raises(Unreadable, match=message) as caught:
        parse(data)
    assert (caught.value.finding.line, caught.value.finding.column) == (line, column)


def test_alias_bomb_is_refused_at_the_first_alias() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    with pytest.raises(Unreadable, match="aliases are not supported"):
        parse(bomb.encode())


def test_named_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="this is a named pipe; give a file, or - for standard input"):
        read(path)
