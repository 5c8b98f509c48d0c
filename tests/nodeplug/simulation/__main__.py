"""python -m tests.nodeplug.simulation COUNT [--first SEED] | --seed SEED [--steps 0,3,7]."""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence

from tests.nodeplug.simulation.plan import Step, plan
from tests.nodeplug.simulation.simulation import Failure, simulate


def main() -> int:
    """Run as many simulations as requested, or one again; return the number of broken rules."""
    parser = argparse.ArgumentParser(prog="python -m tests.nodeplug.simulation")
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only the simulation of this seed, and print its history")
    parser.add_argument("--steps", help="only these steps of its plan, such as 0,3,7")
    asked = parser.parse_args()
    if asked.seed is not None:
        steps = plan(asked.seed)
        return run_one(asked.seed, [steps[int(i)] for i in asked.steps.split(",")] if asked.steps else steps)
    return run_many(range(asked.first, asked.first + asked.count))


def run_many(seeds: Sequence[int]) -> int:
    """Run these simulations; at the first broken rule, stop and print the shortest command that repeats it."""
    figures: Counter[str] = Counter()
    began = time.monotonic()
    for done, seed in enumerate(seeds, 1):
        try:
            figures += simulate(seed, plan(seed))
        except Failure as failure:
            print(f"seed {seed}: {failure}")
            numbers = shortest(seed, str(failure))
            print(f"repeat: python -m tests.nodeplug.simulation --seed {seed} --steps {','.join(map(str, numbers))}")
            return 1
        except KeyboardInterrupt:
            break
        if done % 100 == 0 or done == len(seeds):
            print(f"{done} interleavings, {figures['steps']} steps, {time.monotonic() - began:.0f} s", flush=True)
    width = max(map(len, figures), default=0)
    for what, count in sorted(figures.items()):
        print(f"  {what:{width}} {count:9}")
    return 0


def shortest(seed: int, why: str) -> list[int]:
    """Remove every step without which the same kind of rule is still broken."""
    steps = plan(seed)
    kept = list(range(len(steps)))
    for number in reversed(range(len(steps))):
        fewer = [x for x in kept if x != number]
        if _kind(_failure(seed, [steps[x] for x in fewer])) == _kind(why):
            kept = fewer
    return kept


def run_one(seed: int, steps: Sequence[Step]) -> int:
    """Run one simulation and print its history."""
    try:
        simulate(seed, steps)
    except Failure as failure:
        print("\n".join(failure.history))
        traceback.print_exception(failure.__cause__)
        return 1
    print("no rule is broken")
    return 0


def _failure(seed: int, steps: Sequence[Step]) -> str:
    try:
        simulate(seed, steps)
    except Failure as failure:
        return str(failure)
    return ""


def _kind(why: str) -> str:
    return ":".join(why.split(":")[:2])


if __name__ == "__main__":
    sys.exit(main())
