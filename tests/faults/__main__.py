"""Make each system call fail in each way, with one scenario per fault, and report what is wrong afterwards.

    python -m tests.faults [--call CALL...] [--kind KIND] [--path GLOB] [--scenario SCENARIO] [--every | --sample SEED]
                           [--order SEED] [--jobs N] [--json FILE]

A scenario is one of these: a daemon from its start to its end (`whole`), the same with an update to a newer daemon
(`update`), or the start of a daemon with a ledger of an older schema (`from 1`: version 1). The first two runs of
each kind only record the calls. Of a call that is made often, the first, the middle and the last are tried; with
`--every`, all of them; with `--sample`, a random one for each fault.
"""

import argparse
import asyncio
import errno
import fnmatch
import functools
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

from msgspec import Struct

from tests.checkpoint.older import OLDER
from tests.faults.outcome import Outcome
from tests.faults.scenario import run_scenario
from tests.faults.shim import Fault, library, recorded
from tests.faults.upgrade import upgrade

_DISK = ("ENOSPC", "EIO", "EROFS")
_KINDS = {
    "read": ("EIO", "EMFILE", "EMFILE+"),  # opening for reading
    "open": ("kill", "killed-after", *_DISK, "EMFILE", "ENOSPC+", "EROFS+"),
    "write": ("kill", "killed-after", "short", "EINTR", "ENOSPC", "EIO", "ENOSPC+"),
    "sync": ("kill", "killed-after", "EIO", "ENOSPC", "EIO+"),
    "truncate": ("kill", "EIO", "ENOSPC"),
    "allocate": ("kill", "killed-after", "EIO", "ENOSPC", "ENOSPC+", "EOPNOTSUPP+"),
    "rename": ("kill", "killed-after", *_DISK),
    "unlink": ("kill", "killed-after", "EIO", "EROFS"),
    "mkdir": ("kill", "killed-after", *_DISK),
    "link": ("kill", "killed-after", *_DISK),
    "chmod": ("kill", "EROFS"),
    "stat": ("EIO", "EACCES", "EIO+"),
    "list": ("EIO", "EMFILE", "EMFILE+"),
    "entry": ("EIO", "EIO+"),  # of a listed folder
    "lock": ("ENOLCK", "EIO", "ENOLCK+"),
    "map": ("ENOMEM", "ENOMEM+"),
    "thread": ("EAGAIN", "EAGAIN+"),
    "socket": ("EMFILE", "ENOBUFS", "EMFILE+"),
    "bind": ("kill", "killed-after", "ENOSPC", "EROFS"),
    "connect": ("kill", "killed-after", "EAGAIN", "ENOMEM"),
    "accept": ("kill", "killed-after", "EMFILE", "EMFILE+", "ECONNABORTED"),
    "receive": ("kill", "killed-after", "ECONNRESET", "EINTR"),
    "send": ("kill", "killed-after", "short", "EINTR", "EPIPE"),
}
_KILLS = ("kill", "killed-after")


SCENARIOS: dict[str, Callable[..., Awaitable[Outcome]]] = {
    "whole": run_scenario,
    "update": functools.partial(run_scenario, at_update=True),
    **{f"from {version}": functools.partial(upgrade, version) for version in OLDER},
}


class Trial(Struct, frozen=True):
    """A fault in a scenario. With `loses_power`, the machine loses power together with the process."""

    scenario: str
    fault: Fault
    loses_power: bool

    def __str__(self) -> str:
        """Return its description: `whole: ENOSPC from then on at write 2 of state/lock`."""
        fault = self.fault
        number = fault.kind.rstrip("+")
        kind = errno.errorcode[int(number)] if number.isdigit() else number
        later = " from then on" if fault.kind.endswith("+") else ""
        power = "power cut, " if self.loses_power else ""
        return f"{self.scenario}: {power}{kind}{later} at {fault.call} {fault.number} of {fault.pattern}"


def trials(
    scenario: str, calls: Counter[tuple[str, str]], *, every: bool = False, sample: Random | None = None
) -> Iterator[Trial]:
    """Yield each fault; each kill at a ledger file is repeated with a power cut."""
    for (call, path), count in sorted(calls.items()):
        for kind in _KINDS.get(call, ()):
            name = kind.rstrip("+")
            number = str(getattr(errno, name)) + kind[len(name) :] if name.startswith("E") else kind
            numbers = range(1, count + 1) if every else sorted({1, (count + 1) // 2, count})
            for which in numbers if sample is None else [sample.randint(1, count)]:
                fault = Fault(call, number, which, path)
                yield Trial(scenario, fault, loses_power=False)
                if kind in _KILLS and path.startswith("state/"):
                    yield Trial(scenario, fault, loses_power=True)


async def _calls(scenario: str) -> Counter[tuple[str, str]] | None:
    """Return the common calls of two runs without a fault, and one of each other call; None if a scenario fails."""
    found: list[Counter[tuple[str, str]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for calls in (Path(folder) / "first", Path(folder) / "second"):
            outcome = await SCENARIOS[scenario](calls=calls)
            if outcome.wrong:
                print(outcome.log, *outcome.wrong, sep="\n")
                return None
            found.append(recorded(calls))
    first, second = found
    return Counter({call: min(first[call], second[call]) or 1 for call in first | second})


async def _all(options: argparse.Namespace) -> int:
    wanted: list[Trial] = []
    sample = None if options.sample is None else Random(options.sample)
    for scenario in fnmatch.filter(SCENARIOS, options.scenario):
        if (calls := await _calls(scenario)) is None:
            return 1
        wanted += [
            trial
            for trial in trials(scenario, calls, every=options.every, sample=sample)
            if any(fnmatch.fnmatch(trial.fault.call, call) for call in options.call)
            and fnmatch.fnmatch(trial.fault.pattern, options.path)
            and fnmatch.fnmatch(str(trial), f"{scenario}: {options.kind} at *")
        ]
    # thousands take hours: an interrupted run has then tried faults of all kinds
    Random(options.order).shuffle(wanted)
    print(f"{len(wanted)} faults in order {options.order}", flush=True)
    turns = asyncio.Semaphore(options.jobs)
    results: list[dict[str, object]] = []

    async def one(trial: Trial) -> None:
        async with turns:
            began = time.monotonic()
            try:
                outcome = await SCENARIOS[trial.scenario](trial.fault, loses_power=trial.loses_power)
            except Exception:  # an exception in a stand-in is a finding as well
                outcome = Outcome([traceback.format_exc()], 0, "", met=True)
        results.append({"fault": str(trial), "starts": outcome.starts, "met": outcome.met, "wrong": outcome.wrong})
        found = "WRONG" if outcome.wrong else "ok" if outcome.met else "missed"
        print(
            f"{found:7}{outcome.starts:3} starts {time.monotonic() - began:5.1f} s  {trial}",
            *outcome.wrong,
            sep="\n    ",
        )
        if outcome.wrong and options.logs:
            print(outcome.log)
        sys.stdout.flush()

    await asyncio.gather(*(one(each) for each in wanted))
    wrong = sum(bool(each["wrong"]) for each in results)
    missed = sum(not each["met"] for each in results)  # the call was made less often than before
    again = sum(each["starts"] != 1 for each in results)
    print(f"{len(results)} scenarios, {wrong} wrong, {missed} missed their fault, {again} with another start")
    if options.json:
        options.json.write_text(json.dumps(sorted(results, key=lambda x: str(x["fault"])), indent=1) + "\n")
    return 1 if wrong else 0


def main() -> int:
    """Run the command; the exit status is 1 if a scenario ended with a wrong state."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--call", nargs="+", default=["*"], help="only these calls")
    parser.add_argument("--kind", default="*", help="only these faults: kill, ENOSPC, 'power cut*'")
    parser.add_argument("--path", default="*", help="only on these paths")
    parser.add_argument("--scenario", default="*", help=f"only these scenarios: {', '.join(SCENARIOS)}")
    parser.add_argument("--every", action="store_true", help="try every call, also if it is made often")
    parser.add_argument("--sample", type=int, metavar="SEED", help="try one random call of those that are made often")
    parser.add_argument("--order", type=int, metavar="SEED", default=0, help="seed of the random order of the faults")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios in parallel")
    parser.add_argument("--logs", action="store_true", help="print the daemon's log if something is wrong")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    if library() is None:
        print("a C compiler is needed: install gcc")
        return 2
    return asyncio.run(_all(options))


if __name__ == "__main__":
    sys.exit(main())
