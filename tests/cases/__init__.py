"""Recorded answers of the real parts, run against what is built here.

    python -m tests.cases FILE...        any file in a format that a runner knows; see `--help`

A *runner* is a module of this package that is named in RUNNER_MODULES and has `FORMATS`, a list of `Format`. A format
says by a document's content whether it is meant, and makes its cases. A case's `run` returns when the answer agrees,
raises `Mismatch` with the difference when it does not, and `Skipped` with the reason when the case is out of scope.

The pytest tests use the same code, many cases in a test:

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
