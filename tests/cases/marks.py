"""The bridge to pytest."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cases.documents import CASES_ROOT, read_document
from tests.cases.results import Case, Skipped
from tests.cases.runners import cases_of


def recorded(*paths: str) -> Callable[[Any], Any]:
    """Parametrise a test's `case` with the cases of files under $NODEPLUG_CASES; skips if a file is missing."""
    parameters = []
    for path in paths:
        file = CASES_ROOT / path
        if not file.exists():
            reason = f"{path} is not under {CASES_ROOT}; set NODEPLUG_CASES"
            parameters.append(pytest.param(None, id=path, marks=pytest.mark.skip(reason=reason)))
            continue
        parameters += [pytest.param(_skipping(case), id=case.name) for case in cases_of(read_document(file))]
    return pytest.mark.parametrize("case", parameters)


def _skipping(case: Case) -> Case:
    """The case, with `Skipped` told to pytest in its own way."""

    def run() -> None:
        try:
            case.run()
        except Skipped as reason:
            pytest.skip(str(reason))

    return Case(case.name, run)
