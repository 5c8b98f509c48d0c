"""Recorded answers of real components, compared with this project's.

    python -m tests.cases FILE...        any file in a format that a runner knows; see `--help`

A *runner* is a module of this package that is listed in RUNNER_MODULES and has `FORMATS`, a list of `Format`. A format
recognises its documents by their content, and creates their cases. A case's `run` returns if the answer agrees, raises
`Mismatch` with the difference if it does not, and `Skipped` with the reason if the case is out of scope.

The pytest tests use the same code, with many cases per test:

    @recorded("quantity/quantities.json")
    def test_recorded_quantities(case: Case) -> None:
        case.run()
"""

from tests.cases.documents import Document, UnreadableError, read_document, recorded_at
from tests.cases.marks import recorded
from tests.cases.results import Case, CaseResult, Format, Mismatch, Outcome, Skipped, expect_equal
from tests.cases.runners import RUNNER_MODULES, cases_of, run_case

__all__ = [
    "RUNNER_MODULES",
    "Case",
    "CaseResult",
    "Document",
    "Format",
    "Mismatch",
    "Outcome",
    "Skipped",
    "UnreadableError",
    "cases_of",
    "expect_equal",
    "read_document",
    "recorded",
    "recorded_at",
    "run_case",
]
