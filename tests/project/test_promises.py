"""The tests and commands that docs/promises.md names exist."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/promises.md").read_text()


def test_every_named_test_and_command_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 60
    missing = [test for test in named if f"def {test[1]}(" not in (ROOT / test[0]).read_text()]
    commands = set(re.findall(r"python -m (tests[\w.]*)", PAGE))
    assert {"tests.faults", "tests.fuzz", "tests.soak"} <= commands
    missing += [(name, "") for name in commands if importlib.util.find_spec(f"{name}.__main__") is None]
    assert not missing
