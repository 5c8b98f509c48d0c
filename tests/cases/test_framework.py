"""The runner of recorded answers: results, exit code, selection, unknown formats."""

import gzip
import json
from pathlib import Path

import pytest

from tests.cases.__main__ import main
from tests.cases.marks import recorded
from tests.cases.results import Case, Mismatch, Outcome, Skipped, expect_equal
from tests.cases.runners import run_case


@pytest.fixture
def quantities(tmp_path: Path) -> Path:
    right = {"in": "1Ki", "canonical": "1Ki", "format": "BinarySI", "float": 1024, "sign": 1, "value": 1024}
    right |= {"milliValue": 1024000, "asInt64": 1024}
    file = tmp_path / "some.json"
    file.write_text(
        json.dumps({"source": "a test", "cases": [right, right | {"in": "2Ki"}, {"in": "x", "error": "?"}]})
    )
    return file


def test_failed_cases_are_printed_with_differences(quantities: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(quantities)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"FAILED {quantities}: '2Ki'"
    assert '    $.canonical: expected "1Ki", got "2Ki"' in lines
    assert lines[-1] == "1 passed, 2 failed, 0 skipped"


def test_grouped_cases_all_run_and_all_failures_are_reported(quantities: Path) -> None:
    (parameter,) = recorded(str(quantities)).args[1]
    (case,) = parameter.values
    with pytest.raises(AssertionError, match=r"'2Ki': (?s:.*)'x': "):
        case.run()


def test_cases_are_selected_by_name_and_printed_up_to_limit(
    quantities: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(quantities), "-k", "1Ki"]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed, 0 skipped\n"
    assert main([str(quantities), "--show", "1"]) == 1
    assert capsys.readouterr().out.count("FAILED") == 1


def test_gzipped_json_lines_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "more.jsonl.gz"
    line = {
        "in": "?",
        "error": "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    }
    file.write_bytes(gzip.compress(f"{json.dumps(line)}\n{json.dumps(line)}\n".encode()))
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed, 0 skipped\n"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("unknown.json", b'{"cases": [{"what": 1}]}', "no runner for this format"),
        ("empty.json", b"", "Expecting value"),
        ("list.json", b"[1, 2]", "no runner for this format"),
        ("utf.json", b'"\xff"', "can't decode"),
        ("short.jsonl.gz", b"\x1f\x8b\x08", "ended before"),
        ("plain.jsonl.gz", b"{}", "Not a gzipped file"),
    ],
)
def test_unreadable_file_is_a_failed_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, text: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main([str(tmp_path / name), str(tmp_path / "absent.json")]) == 1
    out = capsys.readouterr().out
    assert text in out
    assert out.endswith("0 passed, 2 failed, 0 skipped\n")


def test_case_passes_fails_or_is_skipped() -> None:
    def skip() -> None:
        raise Skipped("alpha feature")

    def crash() -> None:
        raise KeyError("gone")

    assert run_case(Case("a", lambda: None)).outcome is Outcome.PASSED
    assert run_case(Case("a", skip)) == ("a", Outcome.SKIPPED, "alpha feature")
    crashed = run_case(Case("a", crash))
    assert crashed.outcome is Outcome.FAILED
    assert "KeyError: 'gone'" in crashed.detail


def test_json_numbers_are_equal_by_value_and_differences_are_listed() -> None:
    expect_equal({"a": [1, 2.0, None]}, {"a": [1.0, 2, None]})
    for expected, actual, text in (
        ({"a": 1}, {}, r"\$\.a: expected 1, got nothing"),
        ({}, {"a": 1}, r"\$\.a: expected nothing, got 1"),
        ([1], [1, 2], r"\$: expected 1 items, got 2"),
        ({"a": [True]}, {"a": [1]}, r"\$\.a\[0\]: expected true, got 1"),
        ("1", 1, r'\$: expected "1", got 1'),
        (list(range(30)), [-1] * 30, "10 more differences"),
    ):
        with pytest.raises(Mismatch, match=text):
            expect_equal(expected, actual)
