"""What upstream's allocator answers to random problems.

python -m tests.controlplane.structured.upstream record         write its answers to the problems of the suite
python -m tests.controlplane.structured.upstream FIRST COUNT    compare ours with it for other problems

Both build the allocator, which takes a minute and Go; NODEPLUG_ORACLE is the folder of its program.
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.cases import Mismatch
from tests.cases.allocator import compare
from tests.cases.documents import CHECKOUT
from tests.controlplane.structured.random_problems import random_problem

SEEDS = range(100_000, 101_000)
ANSWERS = Path(__file__).with_name("upstream_answers.jsonl.gz")
ORACLE = Path(os.environ.get("NODEPLUG_ORACLE", CHECKOUT.parent / "shared/oracle")) / "allocator"

Json = dict[str, Any]


def recorded() -> list[Json]:
    """Upstream's answers to `SEEDS`, each with the `digest` of its problem."""
    return [json.loads(line) for line in gzip.decompress(ANSWERS.read_bytes()).splitlines()]


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


def _record() -> None:
    problems = [random_problem(seed) for seed in SEEDS]
    answers = [
        {"digest": digest(problem), **{key: value for key, value in said.items() if key != "micros"}}
        for problem, said in zip(problems, _ask(problems), strict=True)
    ]
    lines = "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in answers)
    ANSWERS.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def _compare(seeds: Iterable[int]) -> int:
    problems = [random_problem(seed) for seed in seeds]
    found = [difference(*each) for each in zip(problems, _ask(problems), strict=True)]
    different = [x for x in found if x is not None]
    print(*different, f"{len(different)} of {len(problems)} answers differ", sep="\n")
    return bool(different)


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        _record()
    else:
        first, count = map(int, sys.argv[1:])
        sys.exit(_compare(range(first, first + count)))
