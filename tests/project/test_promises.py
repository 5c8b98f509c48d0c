"""The tests and commands that docs/promises.md and docs/transport.md name exist."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = (ROOT / "docs/promises.md").read_text()
TRANSPORT = (ROOT / "docs/transport.md").read_text()


def test_every_named_test_and_command_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PROMISES)
    assert len(named) > 60
    missing = [test for test in named if f"def {test[1]}(" not in (ROOT / test[0]).read_text()]
    commands = set(re.findall(r"python -m (tests[\w.]*)", PROMISES))
    assert {"tests.faults", "tests.fuzz", "tests.soak"} <= commands
    missing += [(name, "") for name in commands if importlib.util.find_spec(f"{name}.__main__") is None]
    assert not missing


@pytest.mark.parametrize("page", [PROMISES, TRANSPORT], ids=["promises", "transport"])
def test_every_selection_of_tests_selects_some(page: str) -> None:
    commands = re.findall(r"`pytest ((?:tests/[\w/]+\.py )+)-k (\w+|\"[\w ]+\")`", page)
    assert commands
    for files, expression in commands:
        names = " ".join(x for file in files.split() for x in re.findall(r"def (test_\w+)", (ROOT / file).read_text()))
        assert all(word in names for word in expression.strip('"').split(" or ")), (files, expression)
