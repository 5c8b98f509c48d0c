"""Upstream's answers to random problems: computed by its programs, and recorded for the suite.

A module that passes its kinds of problems to `command` becomes a command:

python -m MODULE record               write upstream's answers to the problems of the suite
python -m MODULE KIND FIRST COUNT     compare our answers with upstream's for other problems

Both build upstream's program, which takes a minute and needs Go. NODEPLUG_ORACLE is the folder of the programs.
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
_TIMES = 500  # further runs of upstream, which visits maps in random order; some answers depend on that order

Json: TypeAlias = dict[str, Any]
_Ask: TypeAlias = Callable[[Iterable[Json]], list[Json]]


class Kind(NamedTuple):
    """Problems of one kind."""

    make: Callable[[int], Json]
    """Returns the problem for a seed."""
    difference: Callable[[Json, Json], str | None]
    """Returns how our answer to a problem differs from upstream's; None if it does not, or if upstream gave none."""
    program: str
    """The folder of upstream's program."""
    arguments: tuple[str, ...] = ()
    seeds: range = range(0)
    """The seeds whose answers are recorded."""
    answers: Path = Path()
    """The file of the recorded answers."""


def recorded(kind: Kind) -> Iterator[tuple[Json, Json]]:
    """Return the problems of the suite with upstream's answers; each answer contains the `digest` of its problem."""
    answers = gzip.decompress(kind.answers.read_bytes()).decode().split("\n")
    return zip(map(kind.make, kind.seeds), map(json.loads, filter(None, answers)), strict=True)


def differences(kind: Kind) -> list[str]:
    """Return how our answers to the problems of the suite differ from upstream's."""
    found = []
    for problem, answer in recorded(kind):
        assert answer["digest"] == digest(problem), "the problems are others now; have upstream's answers recorded"
        found.append(kind.difference(problem, answer))
    return [x for x in found if x is not None]


def digest(problem: Json) -> str:
    """Return a short hash that identifies a problem."""
    return hashlib.sha256(json.dumps(problem, sort_keys=True).encode()).hexdigest()[:16]


def command(kinds: Mapping[str, Kind]) -> None:
    """Run the command line of a module with these kinds; exits with status 1 if answers differ."""
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
            done = subprocess.run(
                [program, *kind.arguments], input=lines, stdout=subprocess.PIPE, text=True, check=True
            )
            return [json.loads(line) for line in done.stdout.split("\n") if line]

        yield ask


def _answered(kind: Kind, seeds: Iterable[int]) -> Iterator[tuple[Json, Json, str | None]]:
    """Yield problems, upstream's answers, and the differences of ours; if answers vary, one that matches ours."""
    problems = list(map(kind.make, seeds))
    with _oracle(kind) as ask:
        for problem, answer in zip(problems, ask(problems), strict=True):
            difference = kind.difference(problem, answer)
            for other in ask([problem] * _TIMES) if difference else ():
                if kind.difference(problem, other) is None:
                    answer, difference = other, None
                    break
            yield problem, answer, difference


def _record(kind: Kind) -> None:
    lines = ""
    for problem, upstreams, _ in _answered(kind, kind.seeds):
        answer = {key: _first_line(value) for key, value in upstreams.items() if key != "micros"}
        lines += json.dumps({"digest": digest(problem), **answer}, separators=(",", ":")) + "\n"
    kind.answers.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def _first_line(value: Any) -> Any:
    """Return the message without the stack trace."""
    return value.partition("\ngoroutine ")[0] if isinstance(value, str) else value


def _compare(kind: Kind, seeds: range) -> int:
    found = [difference for _, _, difference in _answered(kind, seeds) if difference is not None]
    print(*found, f"{len(found)} of {len(seeds)} answers differ", sep="\n")
    return bool(found)
