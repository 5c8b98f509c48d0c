"""Upstream's answers to random allocation problems; a command, see `tests/upstream.py`."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.cases import Mismatch
from tests.cases.allocator import compare
from tests.controlplane.structured.edge_case_problems import edge_case_problem
from tests.controlplane.structured.random_problems import random_problem
from tests.controlplane.structured.solvable_problems import solvable_problem
from tests.upstream import Json, Kind, command

_FOLDER = Path(__file__).parent
_ASKED = ("allocator", ("-allocators", "experimental", "-timeout", "1s"))


def difference(problem: Json, answer: Json) -> str | None:
    """The difference between our answer and upstream's; None if they agree or upstream has no answer."""
    if answer.get("panic") or answer.get("timedOut"):
        return None
    try:
        compare(problem, answer, answer["numAllocateOneInvocations"])
    except Mismatch as mismatch:
        return f"{problem['name']}: {mismatch}"
    return None


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "random": Kind(
            random_problem, difference, *_ASKED, range(100_000, 101_000), _FOLDER / "random_answers.jsonl.gz"
        ),
        "odd": Kind(edge_case_problem, difference, *_ASKED, range(1_000), _FOLDER / "odd_answers.jsonl.gz"),
        "solvable": Kind(solvable_problem, difference, *_ASKED, range(60), _FOLDER / "solvable_answers.jsonl.gz"),
    }
)


if __name__ == "__main__":
    command(KINDS)
