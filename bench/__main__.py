"""`python -m bench [NAME...]` measures, prints tables and stores them in `bench/results/NAME.json`; `all` runs all.

The measured daemon runs on the same Python: `make bench` uses the system's, like the image. Without names, the
benchmarks that have goals are run, which takes at most ten minutes on a quiet machine. `python -m bench page` copies
the results into `docs/benchmarks.json` and writes `docs/benchmarks.md` from that.

A benchmark is a module with `run()`, which yields tables. The first line of its docstring is its title, the rest
describes the measurement.
"""

import importlib
import sys
import time

from bench import page, results
from bench.machine import describe
from bench.table import LeftOut, Table, show

WITH_GOALS = ("daemon", "hotplug", "slices", "dra", "prepare", "ledger")
OTHERS = ("transport", "hostile", "scan", "kubelet", "apiserver", "fleet", "cel", "allocator", "many")


def main(names: list[str]) -> None:
    """Run the named benchmarks."""
    known = (*WITH_GOALS, *OTHERS)
    if names == ["page"]:
        page.write(known)
        return
    if names == ["all"]:
        names = list(known)
    if unknown := set(names) - set(known):
        raise SystemExit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}, all, and page")
    for name in names or WITH_GOALS:
        _measure(name)


def _measure(name: str) -> None:
    machine, date, began = describe(), time.strftime("%Y-%m-%d", time.gmtime()), time.monotonic()
    print(f"\n== {name} ==  " + ", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    tables: list[Table] = []
    try:
        for table in importlib.import_module(f"bench.{name}").run():
            show(table)
            print(flush=True)
            tables.append(table)
    except LeftOut as reason:
        print(f"{name}: left out: {reason}")
    if tables:
        results.save(name, results.Result(machine, date, round(time.monotonic() - began), tuple(tables)))


if __name__ == "__main__":
    main(sys.argv[1:])
