"""`docs/benchmarks.md`, written from `docs/benchmarks.json`."""

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence

from bench import results
from bench.results import Result
from bench.table import markdown

PAGE = results.PUBLISHED.with_suffix(".md")
_INTRODUCTION = """\
# Benchmarks

`make bench ARGS=page` writes this page from [benchmarks.json](benchmarks.json). `make bench` measures everything that
has a goal, in at most ten minutes; `make bench ARGS=NAME` measures one part, and `ARGS=all` all parts. Each part prints
its tables and stores them in `bench/results`, where `page` reads them.

Tests never assert speed. The benchmarks run on the system's Python (Debian's 3.11), which the image and the package
also use. A Python that was built without profiles, such as pyenv's, takes a quarter more time. The figures are from one
machine; only ratios within one run apply to other machines.

The programs for comparison (a Go plugin that syncs each allocation to disk before it answers, the probe that acts as
the kubelet for both, the Go driver of `examples/go`) are built separately, in the folder `$NODEPLUG_BASELINES`.
Without them the benchmarks skip the comparison and report it.
"""


def write(names: Sequence[str]) -> None:
    """Publish this checkout's results of `names`, keep the published others, and write the page in their order."""
    known = results.published()
    measured = {name: result for name in names if (result := results.load(name) or known.get(name)) is not None}
    results.publish(measured)
    PAGE.write_text(render(measured))


def render(measured: Mapping[str, Result]) -> str:
    """Return the page."""
    return "\n".join([_INTRODUCTION, *(line for name, result in measured.items() for line in _section(name, result))])


def _section(name: str, result: Result) -> Iterator[str]:
    title, _, how = inspect.cleandoc(importlib.import_module(f"bench.{name}").__doc__ or "").partition("\n")
    machine = result.machine
    yield f"## {title.rstrip('.')}\n"
    yield f"`make bench ARGS={name}`. {' '.join(how.split())}\n"
    for table in result.tables:
        yield from markdown(table)
        yield ""
    yield (
        f"Measured on {result.date} at {machine['commit']} in {result.seconds} s: {machine['cpu']}, {machine['cores']}"
        f" cores, kernel {machine['kernel']}, Python {machine['python']}, grpcio {machine['grpcio']}, protobuf"
        f" {machine['protobuf']}; load before: {machine['load']}.\n"
    )
