"""The page of benchmarks is generated from its JSON; unmeasurable parts are named. Nothing is measured here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import page, results
from bench.table import Goal

ROOT = Path(__file__).resolve().parents[2]


def test_page_is_generated_from_the_json() -> None:
    assert page.PAGE.read_text() == page.render(results.published())


def test_missing_baseline_is_named_and_others_continue(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "daemon", "transport"]
    environment = {**os.environ, "NODEPLUG_BASELINES": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    for name in ("daemon", "transport"):
        assert re.search(rf"^{name}: left out: no \w+ in {tmp_path}; build the baselines", done.stdout, re.M)


@pytest.mark.parametrize(
    ("goal", "value", "says"),
    [
        (Goal(8), 7.9, "at most 8: reached"),
        (Goal(8), 8.1, "at most 8: not reached"),
        (Goal(1.3, "Go", at_least=True), 1300.0, "at least 1.3 of Go: reached"),
        (Goal(1.3, "Go"), 1301.0, "at most 1.3 of Go: not reached"),
        (Goal(1.3, "Rust"), 1301.0, "at most 1.3 of Rust"),
    ],
)
def test_goal_is_judged_against_its_baseline(goal: Goal, value: float, says: str) -> None:
    assert goal.judge(value, {"nodeplug": value, "Go": 1000.0}) == says
