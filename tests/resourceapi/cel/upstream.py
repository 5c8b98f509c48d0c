"""Upstream's answers to random expressions and device selectors; a command, see `tests/upstream.py`.

`mutated` is derived from the recorded expressions and is not recorded itself. These answers are not compared:
panics of upstream, texts of syntax errors, and Go's format of lists and maps that JSON cannot represent.
"""

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from tests.cases import Mismatch, expect_equal, read_document, recorded_at
from tests.cases.cel import agrees, compare_selector, evaluate, match
from tests.resourceapi.cel.random_expressions import mutated_expression, random_expression
from tests.resourceapi.cel.random_selectors import random_selector
from tests.upstream import Json, Kind, command

_FOLDER = Path(__file__).parent
_CONFIGURATIONS = [
    {"envType": kind, "enableConsumableCapacity": switched_on, "enableListTypeAttributes": switched_on}
    for kind, switched_on in (("StoredExpressions", False), ("NewExpressions", False), ("NewExpressions", True))
]
_ANSWER = ("compileError", "outputType", "maxCost", "match", "matchError", "actualCost")
_PRINTED_BY_GO = re.compile(r"\[|map\[|\{\w+ 0x")


def _expression(seed: int) -> Json:
    return {"name": f"seed-{seed}", "expr": random_expression(seed)}


def _mutated(seed: int) -> Json:
    rng = random.Random(seed)
    return {"name": f"seed-{seed}", "expr": mutated_expression(rng, rng.choice(_recorded_expressions()))}


@lru_cache(maxsize=1)
def _recorded_expressions() -> list[str]:
    return [case["expr"] for case in read_document(recorded_at("cel/expressions.json")).cases]


def _selector(seed: int) -> Json:
    return random_selector(seed) | {"configurations": [_CONFIGURATIONS[seed % len(_CONFIGURATIONS)]]}


def _expression_difference(problem: Json, answer: Json) -> str | None:
    expected = {key: value for key, value in answer.items() if key not in ("name", "digest")}
    actual = evaluate(problem["expr"])
    if _PRINTED_BY_GO.match(expected.get("text", "")):
        expected["text"] = actual.get("text")
    if expected.get("evalError", "").startswith("panic: ") or agrees(expected, actual):
        return None
    try:
        expect_equal(expected, actual)
    except Mismatch as mismatch:
        return f"{problem['name']}: {problem['expr']}\n{mismatch}"
    return None


def _selector_difference(problem: Json, answer: Json) -> str | None:
    for run in answer["runs"] or ():  # None if upstream panics
        expected = {key: run.get(key) or None if key == "outputType" else run.get(key) for key in _ANSWER}
        try:
            compare_selector(expected, match(problem["expression"], problem["device"], run))
        except Mismatch as mismatch:
            return f"{problem['name']}: {problem['expression']} ({run['envType']})\n{mismatch}"
    return None


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "expressions": Kind(
            make=_expression,
            difference=_expression_difference,
            program="cel",
            seeds=range(800),
            answers=_FOLDER / "expressions_answers.jsonl.gz",
        ),
        "mutated": Kind(make=_mutated, difference=_expression_difference, program="cel"),
        "selectors": Kind(
            make=_selector,
            difference=_selector_difference,
            program="allocator",
            arguments=("-cel",),
            seeds=range(600),
            answers=_FOLDER / "selectors_answers.jsonl.gz",
        ),
    }
)


if __name__ == "__main__":
    command(KINDS)
