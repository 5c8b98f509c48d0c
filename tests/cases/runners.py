"""Find the runner for a document by its content, and run cases."""

import importlib
import importlib.util
import traceback
from collections.abc import Iterator

from tests.cases.documents import Document
from tests.cases.results import Case, CaseResult, Format, Mismatch, Outcome, Skipped

RUNNER_MODULES = (
    "quantities",
    "validation",
    "cel",
    "allocator",
    "kubelet_files",
    "controller",
    "tracker",
)
"""Modules of this package with `FORMATS`; missing ones are ignored."""


def cases_of(document: Document) -> Iterator[Case]:
    """The cases of a document; raises LookupError if no runner knows its format."""
    for module_name in RUNNER_MODULES:
        for known in _formats(module_name):
            if known.matches(document):
                yield from known.cases(document)
                return
    raise LookupError("no runner for this format")


def run_case(case: Case) -> CaseResult:
    """Run one case and return its result."""
    try:
        case.run()
    except Skipped as reason:
        return CaseResult(case.name, Outcome.SKIPPED, str(reason))
    except Mismatch as difference:
        return CaseResult(case.name, Outcome.FAILED, str(difference))
    except Exception:  # any exception of the code under test is a failure of this case, not the end of the run
        return CaseResult(case.name, Outcome.FAILED, traceback.format_exc(limit=-6))
    return CaseResult(case.name, Outcome.PASSED)


def _formats(module_name: str) -> list[Format]:
    full_name = f"{__package__}.{module_name}"
    if importlib.util.find_spec(full_name) is None:
        return []
    formats: list[Format] = importlib.import_module(full_name).FORMATS
    return formats
