"""`python -m tests.cases FILE...`: compare recorded answers and print the differences."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cases.documents import UnreadableError, read_document
from tests.cases.results import CaseResult, Outcome
from tests.cases.runners import cases_of, run_case


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases of the files; return 0 if none failed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file in one of the known formats")
    parser.add_argument("-k", dest="text", default="", metavar="TEXT", help="only cases with TEXT in their name")
    parser.add_argument("--show", type=int, metavar="N", help="print at most N failures (default: all)")
    options = parser.parse_args(arguments)

    totals: Counter[Outcome] = Counter()
    for file in options.files:
        for result in _results(file, options.text):
            totals[result.outcome] += 1
            if result.outcome is Outcome.FAILED and (options.show is None or totals[Outcome.FAILED] <= options.show):
                print(f"FAILED {file}: {result.name}")
                print("".join(f"    {line}\n" for line in result.detail.splitlines()), end="", flush=True)
    print(f"{totals[Outcome.PASSED]} passed, {totals[Outcome.FAILED]} failed, {totals[Outcome.SKIPPED]} skipped")
    return 1 if totals[Outcome.FAILED] else 0


def _results(file: Path, text: str) -> Iterator[CaseResult]:
    try:
        for case in cases_of(read_document(file)):
            if text in case.name:
                yield run_case(case)
    except (UnreadableError, LookupError) as error:
        yield CaseResult("(the file)", Outcome.FAILED, str(error))


if __name__ == "__main__":
    sys.exit(main())
