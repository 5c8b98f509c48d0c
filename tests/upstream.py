"""What upstream answers to random problems: asked of its programs, and recorded for the suite.

A module that names its kinds of problems is a command:

python -m MODULE record               write upstream's answers to the problems of the suite
python -m MODULE KIND FIRST COUNT     compare ours with it for other problems

Both build upstream's program, which takes a minute and Go; NODEPLUG_ORACLE is the folder of its programs.
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tests.cases.documents import CHECKOUT

ORACLE = Path(os.environ.get("NODEPLUG_ORACLE", CHECKOUT.parent / "shared/oracle"))
_TIMES = 500  # that upstream is asked again: it visits maps in random order, which shows in some answers

Json: TypeAlias = dict[str, Any]
_Ask: TypeAlias = Callable[[Iterable[Json]], list[Json]]


class Kind(NamedTuple):
    """Problems of one kind."""

    make: Callable[[int], Json]
    """The problem of a seed."""
    difference: Callable[[Json, Json], str | None]
    """How our answer to a problem differs from upstream's; None where it does not, or upstream gave none."""
    program: str
    """The folder of upstream's program."""
    arguments: tuple[str, ...] = ()
    seeds: range = range(0)
    """Those whose answers are recorded."""
    answers: Path = Path()
    """Where they are recorded."""


def recorded(kind: Kind) -> Iterator[tuple[Json, Json]]:
    """The problems of the suite with upstream's answers, each with the `digest` of its problem."""
    answers = gzip.decompress(kind.answers.read_bytes()).decode().split("\n")
    return zip(map(kind.make, kind.seeds), map(json.loads, filter(None, answers)), strict=True)


def differences(kind: Kind) -> list[str]:
    """How our answers to the problems of the suite differ from upstream's."""
    found = []
    for problem, said in recorded(kind):
        assert said["digest"] == digest(problem), "the problems are others now; have upstream's answers recorded"
        found.append(kind.difference(problem, said))
    return [x for x in found if x is not None]


def digest(problem: Json) -> str:
    """Tells problems apart."""
    return hashlib.sha256(json.dumps(problem, sort_keys=True).encode()).hexdigest()[:16]


def command(kinds: Mapping[str, Kind]) -> None:
    """What the module does that names these kinds; ends with status 1 where answers differ."""
    if sys.argv[1:] == ["record"]:
        for kind in kinds.values():
            if kind.seeds:
                _record(kind)
    else:
        first, count = map(int, sys.argv[2:])
        sys.exit(_compare(kinds[sys.argv[1]], range(first, first + count)))


@contextmanager
def _oracle(kind: Kind) -> Iterator[_Ask]:
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/oracle"
        build = ["go", "build", "-buildvcs=false", "-o", program, "."]
        subprocess.run(build, cwd=ORACLE / kind.program, check=True)

        def ask(problems: Iterable[Json]) -> list[Json]:
            lines = "\n".join(map(json.dumps, problems))
            said = subprocess.run(
                [program, *kind.arguments], input=lines, stdout=subprocess.PIPE, text=True, check=True
            )
            return [json.loads(line) for line in said.stdout.split("\n") if line]

        yield ask


def _answered(kind: Kind, seeds: Iterable[int]) -> Iterator[tuple[Json, Json, str | None]]:
    """Problems with upstream's answers and how ours differ; of answers that vary, one as ours is."""
    problems = list(map(kind.make, seeds))
    with _oracle(kind) as ask:
        for problem, said in zip(problems, ask(problems), strict=True):
            difference = kind.difference(problem, said)
            for other in ask([problem] * _TIMES) if difference else ():
                if kind.difference(problem, other) is None:
                    said, difference = other, None
                    break
            yield problem, said, difference


def _record(kind: Kind) -> None:
    lines = ""
    for problem, said, _ in _answered(kind, kind.seeds):
        answer = {key: _first_line(value) for key, value in said.items() if key != "micros"}
        lines += json.dumps({"digest": digest(problem), **answer}, separators=(",", ":")) + "\n"
    kind.answers.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def _first_line(value: Any) -> Any:
    """What is said, without the stack after it."""
    return value.partition("\ngoroutine ")[0] if isinstance(value, str) else value


def _compare(kind: Kind, seeds: range) -> int:
    found = [difference for _, _, difference in _answered(kind, seeds) if difference is not None]
    print(*found, f"{len(found)} of {len(seeds)} answers differ", sep="\n")
    return bool(found)
