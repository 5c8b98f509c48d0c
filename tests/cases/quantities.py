"""Runner for `quantity/quantities.json`: strings and the reference's results."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from resourceapi.objects import Quantity, QuantityError
from tests.cases.documents import Document
from tests.cases.results import Case, Format, expect_equal


def _matches(document: Document) -> bool:
    return document.has_cases_with("in") and all("canonical" in x or "error" in x for x in document.cases)


def _cases(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(repr(entry["in"]), partial(_run, entry))


def _run(entry: dict[str, Any]) -> None:
    expected = {key: value for key, value in entry.items() if key != "in"}
    expect_equal(expected, _answer(entry["in"]))


def _answer(text: str) -> dict[str, Any]:
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        return {"error": str(error)}
    answer: dict[str, Any] = {
        "canonical": str(quantity),
        "float": quantity.as_float(),
        "format": quantity.format,
        "milliValue": quantity.milli_value(),
        "sign": quantity.sign,
        "value": quantity.value(),
    }
    integer = quantity.as_int64()
    return answer if integer is None else answer | {"asInt64": integer}


FORMATS = [Format("quantities", _matches, _cases)]
