"""Run the work of hours of a node in minutes, and report what grew.

    python -m tests.soak [--minutes M] [--warm N] [--allocations N] [--claims N] [--updates N] [--seed S] [--json FILE]

In each round, one daemon has allocations, a claim that is prepared and unprepared, a device that is removed or added, a
changed configuration, and a restart of the kubelet. Once the caches of claims and events are full (`--claims`,
`--warm`), the daemon's resources are measured after each round. Updates of the daemon follow.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from msgspec import structs, to_builtins

from tests.soak.growth import Measure, Slope
from tests.soak.loaded_node import LoadedNode

_UNITS = {"rss": "KiB", "database": "KiB", "log": "KiB"}


async def _soak(options: argparse.Namespace) -> int:
    measures: list[Measure] = []
    async with LoadedNode(options.seed, options.allocations) as node:
        await node.fill(options.claims)
        for _ in range(options.warm):
            await node.round()
        end = time.monotonic() + options.minutes * 60
        while time.monotonic() < end or len(measures) < 10:
            await node.round()
            measures.append(node.measure())
        for _ in range(options.updates):
            await node.update()
        left = node.left_behind()
        after = node.measure()
    slopes = {name: Slope.of([getattr(measure, name) for measure in measures]) for name in structs.asdict(measures[0])}
    lived = ", ".join(f"{count:,} {name}" for name, count in sorted(node.counts.items()))
    print(f"{len(measures)} rounds were measured; in total: {lived}")
    print(
        "| | first | last | most | growth in 1,000 rounds | after the updates |", "|---|---|---|---|---|---|", sep="\n"
    )
    for name, slope in slopes.items():
        unit = _UNITS.get(name, "")
        figures = [*(f"{x:,.0f} {unit}".strip() for x in (slope.first, slope.last, slope.most))]
        growth = f"{slope.slope * 1000:+,.1f} ± {slope.error * 1000:,.1f} {unit}".strip()
        print(f"| {name} | {' | '.join(figures)} | {growth} | {getattr(after, name):,.0f} {unit} |".replace(" |", " |"))
    print(*(f"left behind: {each}" for each in left), sep="\n")
    print(*(f"refused {count} times: {text}" for text, count in node.refusals.most_common(20)), sep="\n")
    if options.json:
        found = {
            "counts": node.counts,
            "refused": node.refusals,
            "slopes": to_builtins(slopes),
            "after": to_builtins(after),
            "left": left,
        }
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(bool(left))


def main() -> int:
    """Run the command; the exit status is 1 if something was left behind."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="time for the measured rounds, which are at least ten"
    )
    parser.add_argument("--warm", type=int, default=100, help="rounds before the measured ones")
    parser.add_argument("--allocations", type=int, default=100, help="allocations per round")
    parser.add_argument("--claims", type=int, default=300, help="claims before the first round")
    parser.add_argument("--updates", type=int, default=10, help="updates of the daemon at the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the results")
    return asyncio.run(_soak(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
