"""Visit every state with a crash, a restart of the kubelet and a change of the configuration, from each configuration.

    python -m tests.model [CONFIGURATION...] [--cgroups {with,without}] [--ledger] [--jobs N]

With --ledger, the real ledger and reconciler also execute every step of the daemon in these states: without cgroups
about 190,000 steps, a quarter of an hour of CPU time; with cgroups many times as many. A step that was already
executed for an earlier configuration is not repeated.
"""

import argparse
import functools
import logging
import multiprocessing
from collections.abc import Iterable

from tests.model.explorer import Graph, Step, Trace
from tests.model.node import CONFIGURATIONS, State
from tests.model.real import folder, live


def _live(start: State, trace: Trace) -> int:
    with folder() as root:
        live(root, start, trace)
    return len(trace)


def main() -> None:
    """Explore; an `AssertionError` shows the error and the trace to it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configurations", nargs="*", metavar="CONFIGURATION", help=", ".join(CONFIGURATIONS))
    parser.add_argument("--cgroups", choices=["with", "without"], help="only one of the two variants")
    parser.add_argument("--ledger", action="store_true", help="run all steps against the real ledger")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes for --ledger")
    options = parser.parse_args()
    chosen = options.configurations or CONFIGURATIONS
    logging.disable(logging.WARNING)  # expected warnings: the kubelet is away in many states
    covered = set[Step]()
    for has_cgroups in (x for x in (False, True) if options.cgroups in (None, "with" if x else "without")):
        for configuration in (x for x in CONFIGURATIONS if x in chosen):
            others = tuple(x for x in CONFIGURATIONS if x != configuration)
            start = State(configuration, has_cgroups, next=others, crashes=1, restarts=1)
            graph = Graph(start)
            name = f"{configuration}, {'with' if has_cgroups else 'without'} cgroups"
            print(f"{name}: {len(graph.states):,} states, {graph.steps:,} steps", flush=True)
            if options.ledger:
                before = len(covered)
                actions = _against_ledger(start, graph.covering(covered), options.jobs)
                print(f"{name}: {len(covered) - before:,} steps in {actions:,} actions", flush=True)


def _against_ledger(start: State, traces: Iterable[Trace], jobs: int) -> int:
    with multiprocessing.Pool(jobs) as pool:
        return sum(pool.imap_unordered(functools.partial(_live, start), traces, chunksize=50))


if __name__ == "__main__":
    main()
