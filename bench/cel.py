"""CEL selectors of devices.

Per evaluation and per compilation. Times are CPU time of this process, the best of several rounds, so that other work
on the machine does not show. The goal is 3 µs for typical selectors; the reference needs 5 to 10 µs.
"""

import time
import timeit
from collections.abc import Iterator
from typing import Any

from bench.table import Cell, Table
from resourceapi.cel import CelEvalError, DeviceView, Semver, compile_selector, device_environment
from resourceapi.objects import Quantity

DRIVER = "gpu.example.com"
_A = f'device.attributes["{DRIVER}"]'
_C = f'device.capacity["{DRIVER}"]'

SELECTORS = {
    "constant": "true",
    "driver": f'device.driver == "{DRIVER}"',
    "driver and model": f'device.driver == "{DRIVER}" && {_A}.model == "a100"',
    "integer": f"{_A}.count >= 2",
    "capacity": f'{_C}.memory.compareTo(quantity("20Gi")) >= 0',
    "driver, model, capacity": f'device.driver == "{DRIVER}" && {_A}.model == "a100"'
    f' && {_C}.memory.compareTo(quantity("20Gi")) >= 0',
    "version": f'{_A}.version.isGreaterThan(semver("1.0.0"))',
    "guarded": f'"model" in {_A} && {_A}.model.startsWith("a1")',
    "optional": f'{_A}.?nothing.orValue("none") == "none"',
    "bind": f"cel.bind(gpu, {_A}, gpu.ready && gpu.count >= 2)",
    "one of": f'{_A}.model in ["a100", "h100"]',
    "pattern": f'{_A}.model.matches("^a[0-9]+$")',
    "list attribute": f'{_A}.tags.exists(tag, tag == "nvlink")',
    "missing attribute": f"{_A}.nothing == 1",
}


def _view() -> DeviceView:
    attributes: dict[str, Any] = {
        "model": "a100",
        "count": 3,
        "ready": True,
        "version": Semver.parse("1.2.3"),
        "tags": ["sxm", "nvlink"],
    }
    return DeviceView(DRIVER, attributes, {"memory": Quantity.parse("40Gi")})


def _microseconds(action: Any, number: int, rounds: int = 5) -> float:
    return min(timeit.repeat(action, number=number, repeat=rounds, timer=time.process_time)) / number * 1e6


def run() -> Iterator[Table]:
    """Time every selector."""
    environment, view = device_environment(), _view()
    rows: list[tuple[Cell, ...]] = []
    for name, source in SELECTORS.items():
        selector = compile_selector(source, environment)

        def evaluate(selector: Any = selector) -> None:
            try:  # noqa: SIM105  # a context manager would be measured as well
                selector.matches(view)
            except CelEvalError:
                pass

        def compile_(source: str = source) -> None:
            compile_selector(source, environment)

        evaluation, compilation = _microseconds(evaluate, 10_000), _microseconds(compile_, 50, rounds=3)
        rows.append((name, evaluation, compilation, selector.max_cost))
    rows.append(("(creating the view of a device)", _microseconds(_view, 2000), None, None))
    yield Table(("selector", "evaluate µs", "compile µs", "estimated cost"), tuple(rows))
