"""`python -m bench [NAME...]`: run the benchmarks of this folder and write `bench/results/NAME.json`.

A benchmark is a module with `run() -> dict`, which also prints its table.
"""

import importlib
import json
import sys
from pathlib import Path

from bench.machine import describe

FOLDER = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "bare_plugin", "machine", "table", "tree"}


def main(names: list[str]) -> None:
    """Run the named benchmarks, all of them without names."""
    known = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    if unknown := set(names) - set(known):
        raise SystemExit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    results = FOLDER / "results"
    results.mkdir(exist_ok=True)
    for name in names or known:
        machine = describe()
        print(f"\n== {name} ==  " + ", ".join(f"{key} {value}" for key, value in machine.items()))
        outcome = importlib.import_module(f"bench.{name}").run()
        (results / f"{name}.json").write_text(json.dumps({"machine": machine, "result": outcome}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
