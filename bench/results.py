"""Results as JSON: those of this checkout below `bench/results`, and those of the page in `docs/benchmarks.json`."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.table import Table

FOLDER = Path(__file__).with_name("results")
PUBLISHED = Path(__file__).parents[1] / "docs/benchmarks.json"


class Result(Struct, frozen=True):
    """The result of one benchmark: the machine, the date, the duration in seconds, and the tables."""

    machine: dict[str, str | int | float | None]
    date: str
    seconds: int
    tables: tuple[Table, ...]


def save(name: str, result: Result) -> None:
    """Store a result in this checkout."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_bytes(_encode(result))


def load(name: str) -> Result | None:
    """Return this checkout's result, or None."""
    path = FOLDER / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=Result) if path.exists() else None


def published() -> dict[str, Result]:
    """Return the results of the page."""
    return msgspec.json.decode(PUBLISHED.read_bytes(), type=dict[str, Result]) if PUBLISHED.exists() else {}


def publish(results: Mapping[str, Result]) -> None:
    """Store the results of the page."""
    PUBLISHED.write_bytes(_encode(results))


def _encode(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
