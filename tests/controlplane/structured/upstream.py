"""What upstream's allocator answers to random problems.

python -m tests.controlplane.structured.upstream record               write its answers to the problems of the suite
python -m tests.controlplane.structured.upstream KIND FIRST COUNT     compare ours with it for other problems

KIND is `random` or `odd`. Both build the allocator, which takes a minute and Go; NODEPLUG_ORACLE is the folder of its
program.
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.cases import Mismatch
from tests.cases.allocator import compare
from tests.cases.documents import CHECKOUT
from tests.controlplane.structured.odd_problems import odd_problem
from tests.controlplane.structured.random_problems import random_problem

KINDS: Mapping[str, tuple[Callable[[int], dict[str, Any]], range]] = MappingProxyType(
    {"random": (random_problem, range(100_000, 101_000)), "odd": (odd_problem, range(1_000))}
)
"""How problems are made, and the seeds of those whose answers are recorded."""
ORACLE = Path(os.environ.get("NODEPLUG_ORACLE", CHECKOUT.parent / "shared/oracle")) / "allocator"

Json = dict[str, Any]


def recorded(kind: str) -> Iterator[tuple[Json, Json]]:
    """The problems of a kind with upstream's answers, each with the `digest` of its problem."""
    make, seeds = KINDS[kind]
    answers = gzip.decompress(_answers(kind).read_bytes()).splitlines()
    return zip(map(make, seeds), map(json.loads, answers), strict=True)


def difference(problem: Json, said: Json) -> str | None:
    """How our answer differs from upstream's; None where it does not, or upstream gave none."""
    if said.get("panic") or said.get("timedOut"):
        return None
    try:
        compare(problem, said, said["numAllocateOneInvocations"])
    except Mismatch as mismatch:
        return f"{problem['name']}: {mismatch}"
    return None


def digest(problem: Json) -> str:
    """Tells problems apart."""
    return hashlib.sha256(json.dumps(problem, sort_keys=True).encode()).hexdigest()[:16]


def _ask(problems: Iterable[Json]) -> Iterator[Json]:
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/oracle"
        subprocess.run(["go", "build", "-buildvcs=false", "-o", program, "."], cwd=ORACLE, check=True)
        command = [program, "-allocators", "experimental", "-timeout", "1s"]
        lines = "\n".join(map(json.dumps, problems))
        said = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    yield from map(json.loads, said.splitlines())


def _answers(kind: str) -> Path:
    return Path(__file__).with_name(f"{kind}_answers.jsonl.gz")


def _record(kind: str) -> None:
    make, seeds = KINDS[kind]
    problems = list(map(make, seeds))
    answers = [
        {"digest": digest(problem), **{key: _first_line(value) for key, value in said.items() if key != "micros"}}
        for problem, said in zip(problems, _ask(problems), strict=True)
    ]
    lines = "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in answers)
    _answers(kind).write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def _first_line(value: Any) -> Any:
    """What is said, without the stack after it."""
    return value.partition("\ngoroutine ")[0] if isinstance(value, str) else value


def _compare(kind: str, seeds: Iterable[int]) -> int:
    problems = list(map(KINDS[kind][0], seeds))
    found = [difference(*each) for each in zip(problems, _ask(problems), strict=True)]
    different = [x for x in found if x is not None]
    print(*different, f"{len(different)} of {len(problems)} answers differ", sep="\n")
    return bool(different)


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        for each in KINDS:
            _record(each)
    else:
        first, count = map(int, sys.argv[2:])
        sys.exit(_compare(sys.argv[1], range(first, first + count)))
