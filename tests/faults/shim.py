"""The library that makes one system call of a process fail, and what it recorded."""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from msgspec import Struct

_SOURCE = Path(__file__).with_name("shim.c")
_BUILT = Path(__file__).parents[2] / "build"  # git ignores it
_MADE_UP = re.compile(
    r"[0-9a-z]{15}(?=\.sock)|(?<=/default_)[a-z]\d*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\d{4}[0-9a-z]{11}|\d{8}T\d{6}Z"
)  # differs in each run


class Fault(Struct, frozen=True):
    """What happens at the `number`th `call` on a path that fits `pattern`, a glob below the folder that is watched.

    `kind` is `kill` (before the call), `killed-after` (after it; after half of a write), `short`, or the number of an
    error; with a `+` behind it each such call from then on fails.
    """

    call: str
    kind: str
    number: int
    pattern: str

    def __str__(self) -> str:
        """Return it as the library reads it."""
        return f"{self.call} {self.kind} {self.number} {self.pattern}"


@functools.cache
def library() -> Path | None:
    """Return the library, built once for a checkout where there is a C compiler; None where there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    target = _BUILT / f"faults-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not target.exists():
        _BUILT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_BUILT) as folder:  # processes that build it at once have one each
            made = Path(folder) / target.name
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(_SOURCE), "-ldl"], check=True)
            made.replace(target)
    return target


def environment(root: Path, log: Path | None, synced: Path, fault: Fault | None) -> dict[str, str]:
    """Return what a `Daemon` needs in its environment to be recorded, and to meet `fault`."""
    made = {"FAULTS_ROOT": str(root), "FAULTS_SYNCED": str(synced)}
    return made | ({"FAULTS_LOG": str(log)} if log else {}) | ({"FAULTS_AT": str(fault)} if fault else {})


def recorded(log: Path) -> Counter[tuple[str, str]]:
    """Return how often each call was made on the paths that each glob stands for."""
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter((call, _MADE_UP.sub("*", path)) for call, _, path in (line.partition(" ") for line in lines))


def was_met(log: Path) -> bool:
    """Tell whether the fault was: another life may not make a call as often as the first did."""
    return log.exists() and any(line.startswith("!") for line in log.read_text().splitlines())


def note_synced(folder: Path, synced: Path) -> None:
    """Count what is in `folder` already as synced."""
    files = sorted(folder.iterdir())
    (synced / str(folder.stat().st_ino)).write_text("".join(f"{x.stat().st_ino} {x.name}\n" for x in files))
    for file in files:
        (synced / str(file.stat().st_ino)).write_bytes(file.read_bytes())


def cut_power(folder: Path, synced: Path) -> None:
    """Leave of `folder` what was synced, and nothing where it was not itself."""
    kept = folder.with_name(f"{folder.name}.before-the-cut")
    os.rename(folder, kept)
    folder.mkdir(mode=0o700)
    listing = synced / str(kept.stat().st_ino)
    for line in listing.read_text().splitlines() if listing.exists() else ():
        inode, _, name = line.partition(" ")
        content = synced / inode
        (folder / name).write_bytes(content.read_bytes() if content.exists() else b"")
    shutil.rmtree(kept)
