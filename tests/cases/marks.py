"""Recorded answers as pytest parameters."""

from collections.abc import Sequence

import pytest

from tests.cases.documents import read_document, recorded_at
from tests.cases.results import Case, Outcome
from tests.cases.runners import cases_of, run_case

CASES_PER_TEST = 50  # cases per test, because pytest's overhead per test is greater than the cost of a case


def recorded(*paths: str) -> pytest.MarkDecorator:
    """Parametrise a test's `case` with the cases of recorded files; skips if a file is missing."""
    parameters = []
    for path in paths:
        file = recorded_at(path)
        if not file.exists():
            reason = f"there is no {file}; set NODEPLUG_CASES"
            parameters.append(pytest.param(None, id=path, marks=pytest.mark.skip(reason=reason)))
            continue
        cases = list(cases_of(read_document(file)))
        parameters += [
            pytest.param(_group(file.name, cases[at : at + CASES_PER_TEST]), id=f"{path}[{at}:]")
            for at in range(0, len(cases), CASES_PER_TEST)
        ]
    return pytest.mark.parametrize("case", parameters)


def _group(name: str, cases: Sequence[Case]) -> Case:
    """Several cases as one, which reports all failures; `python -m tests.cases` also reports skipped cases."""

    def run() -> None:
        results = [run_case(case) for case in cases]
        failed = [f"{each.name}: {each.detail}" for each in results if each.outcome is Outcome.FAILED]
        assert not failed, "\n".join(failed)
        if all(each.outcome is Outcome.SKIPPED for each in results):
            pytest.skip(results[0].detail)

    return Case(name, run)
