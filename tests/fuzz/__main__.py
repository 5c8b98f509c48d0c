"""Run a target with random inputs, on all cores, and print the outcomes.

    python -m tests.fuzz TARGET... [--inputs N] [--seed S] [--jobs N] [--json FILE]
    python -m tests.fuzz TARGET --engine atheris [--inputs N] [--seed S]

A target is one of those below, or `all`. Equal seeds produce equal inputs; failures are reported with their seeds.
"""

import argparse
import json
import logging
import multiprocessing
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from msgspec import Struct, to_builtins

from tests.fuzz.targets import TARGETS

_PART = 500  # inputs per process and turn
_LONGEST = 20.0  # CPU seconds, the limit per input
_MAX_FAILURES = 5  # printed per target


class Found(Struct):
    """The results of some inputs: outcomes, failures with their seeds, the slowest in CPU seconds with its seed."""

    outcomes: Counter[str]
    failures: list[str]
    slowest: tuple[float, int] = (0.0, 0)

    def add(self, other: "Found") -> None:
        """Add other results."""
        self.outcomes += other.outcomes
        self.failures += other.failures
        self.slowest = max(self.slowest, other.slowest)


def _took_too_long(*_: object) -> None:
    raise TimeoutError(f"not done after {_LONGEST:g} s of CPU")


def run(target: str, seeds: range) -> Found:
    """Run a target once for each seed."""
    found = Found(Counter(), [])
    one = TARGETS[target]
    signal.signal(signal.SIGVTALRM, _took_too_long)
    for seed in seeds:
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST)
        try:
            found.outcomes[one(seed)] += 1
        except Exception:  # every exception is a finding
            found.outcomes["FAILED"] += 1
            found.failures.append(f"{target}, seed {seed}:\n{traceback.format_exc()}")
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        found.slowest = max(found.slowest, (time.process_time() - began, seed))
    return found


def main() -> int:
    """Run the command; the exit status is 1 after a failure."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET", choices=["all", *TARGETS], help=", ".join(TARGETS))
    parser.add_argument("--inputs", type=int, default=10_000, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="of the first input; the next ones follow")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--engine", choices=["ours", "atheris"], default="ours", help="who makes the inputs")
    options = parser.parse_args()
    if options.engine == "atheris":
        from tests.fuzz.guided import run_guided  # atheris is optional

        if len(options.targets) > 1 or "all" in options.targets:
            parser.error("--engine atheris takes one target: the process ends with it")
        return run_guided(options.targets[0], options.inputs, options.seed)
    logging.getLogger().addHandler(logging.NullHandler())  # discards our code's log messages about random inputs
    results, failed = {}, False
    end = options.seed + options.inputs
    parts = [range(begin, min(begin + _PART, end)) for begin in range(options.seed, end, _PART)]
    with multiprocessing.Pool(options.jobs) as pool:
        for target in TARGETS if "all" in options.targets else options.targets:
            began, total = time.monotonic(), Found(Counter(), [])
            for found in pool.starmap(run, [(target, part) for part in parts], chunksize=1):
                total.add(found)
            results[target] = to_builtins(total)
            seconds, slowest = total.slowest
            print(
                f"{target}: {options.inputs} inputs in {time.monotonic() - began:.0f} s, {dict(total.outcomes)};"
                f" slowest {seconds * 1000:.0f} ms (seed {slowest})",
                *total.failures[:_MAX_FAILURES],
                sep="\n",
                flush=True,
            )
            failed |= bool(total.failures)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
