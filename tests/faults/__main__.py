"""Make each call fail in each way, one life a fault, and say what was wrong afterwards.

    python -m tests.faults [--call CALL] [--kind KIND] [--path GLOB] [--jobs N] [--json FILE]

A first life records the calls. Of one that is made often, the first, the middle and the last are tried.
"""

import argparse
import asyncio
import errno
import fnmatch
import json
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.life import Outcome, live
from tests.faults.shim import Fault, library, recorded

_DISK = ("ENOSPC", "EIO", "EROFS")
_KINDS = {
    "open": ("kill", "killed-after", *_DISK, "EMFILE", "ENOSPC+", "EROFS+"),
    "write": ("kill", "killed-after", "short", "EINTR", "ENOSPC", "EIO", "ENOSPC+"),
    "sync": ("kill", "killed-after", "EIO", "ENOSPC", "EIO+"),
    "truncate": ("kill", "EIO", "ENOSPC"),
    "rename": ("kill", "killed-after", *_DISK),
    "unlink": ("kill", "killed-after", "EIO", "EROFS"),
    "mkdir": ("kill", "killed-after", *_DISK),
    "link": ("kill", "killed-after", *_DISK),
    "chmod": ("kill", "EROFS"),
    "bind": ("kill", "killed-after", "ENOSPC", "EROFS"),
    "send": ("kill", "killed-after", "short", "EINTR", "EPIPE"),
}
_KILLS = ("kill", "killed-after")


def faults(calls: Counter[tuple[str, str]]) -> Iterator[tuple[Fault, bool]]:
    """Yield each fault, and whether the power goes with the process: with each kill at the ledger's files it does."""
    for (call, path), count in sorted(calls.items()):
        for kind in _KINDS.get(call, ()):
            name = kind.rstrip("+")
            number = str(getattr(errno, name)) + kind[len(name) :] if name.startswith("E") else kind
            for which in sorted({1, (count + 1) // 2, count}):
                fault = Fault(call, number, which, path)
                yield fault, False
                if kind in _KILLS and path.startswith("state/"):
                    yield fault, True


def described(fault: Fault, loses_power: bool) -> str:
    """Return a fault in words: `ENOSPC from then on at write 2 of state/lock`."""
    number = fault.kind.rstrip("+")
    kind = errno.errorcode[int(number)] if number.isdigit() else number
    later = " from then on" if fault.kind.endswith("+") else ""
    return f"{'power cut, ' if loses_power else ''}{kind}{later} at {fault.call} {fault.number} of {fault.pattern}"


async def _all(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls"
        first = await live(calls=calls)
        if first.wrong:
            print(first.log, *first.wrong, sep="\n")
            return 1
        wanted = [
            (fault, loses_power)
            for fault, loses_power in faults(recorded(calls))
            if fnmatch.fnmatch(fault.call, options.call)
            and fnmatch.fnmatch(fault.pattern, options.path)
            and fnmatch.fnmatch(described(fault, loses_power), f"{options.kind} at *")
        ]
    print(f"{len(wanted)} faults", flush=True)
    turns = asyncio.Semaphore(options.jobs)
    results: list[dict[str, object]] = []

    async def one(fault: Fault, loses_power: bool) -> None:
        async with turns:
            try:
                outcome = await live(fault, loses_power=loses_power)
            except Exception:  # what the stand-ins could not bear is a finding, too
                outcome = Outcome([traceback.format_exc()], 0, "")
        name = described(fault, loses_power)
        results.append({"fault": name, "starts": outcome.starts, "wrong": outcome.wrong})
        missed = fault.kind in _KILLS and outcome.starts == 1  # this life did not make that call so often
        print(
            f"{'WRONG' if outcome.wrong else 'missed' if missed else 'ok':7}{outcome.starts:3} starts  {name}",
            *outcome.wrong,
            sep="\n    ",
        )
        if outcome.wrong and options.logs:
            print(outcome.log)
        sys.stdout.flush()

    await asyncio.gather(*(one(*each) for each in wanted))
    wrong = sum(bool(each["wrong"]) for each in results)
    print(f"{len(results)} lives, {wrong} wrong, {sum(each['starts'] != 1 for each in results)} with another start")
    if options.json:
        options.json.write_text(json.dumps(sorted(results, key=lambda x: str(x["fault"])), indent=1) + "\n")
    return 1 if wrong else 0


def main() -> int:
    """Run; the exit status is 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--call", default="*", help="only such calls")
    parser.add_argument("--kind", default="*", help="only such faults: kill, ENOSPC, 'power cut*'")
    parser.add_argument("--path", default="*", help="only on such paths")
    parser.add_argument("--jobs", type=int, default=2, help="lives at once")
    parser.add_argument("--logs", action="store_true", help="print what the daemon wrote where something was wrong")
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    if library() is None:
        print("a C compiler is needed: install gcc")
        return 2
    return asyncio.run(_all(options))


if __name__ == "__main__":
    sys.exit(main())
