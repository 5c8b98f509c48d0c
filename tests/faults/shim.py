"""The library that makes one system call of a process fail, and its records."""

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
_BUILT = Path(__file__).parents[2] / "build"  # ignored by git
_VARYING = re.compile(
    r"[0-9a-z]{15}(?=\.sock)|(?<=/default_)[a-z]\d*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\d{4}[0-9a-z]{11}|\d{8}T\d{6}Z"
)  # differs in each run


class Fault(Struct, frozen=True):
    """A fault of the `number`th `call` on a path that matches `pattern`, a glob below the watched folder.

    `kind` is `kill` (before the call), `killed-after` (after it, or after half a write), `short`, or an errno. With a
    `+` at the end, all later such calls fail as well.
    """

    call: str
    kind: str
    number: int
    pattern: str

    def __str__(self) -> str:
        """Return it in the library's format."""
        return f"{self.call} {self.kind} {self.number} {self.pattern}"


@functools.cache
def library() -> Path | None:
    """Return the library, built once for a checkout; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    target = _BUILT / f"faults-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not target.exists():
        _BUILT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_BUILT) as folder:  # concurrent builds use separate folders
            made = Path(folder) / target.name
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(_SOURCE), "-ldl"], check=True)
            made.replace(target)
    return target


def environment(root: Path, log: Path | None, synced: Path, fault: Fault | None) -> dict[str, str]:
    """Return the environment variables that make a `Daemon` record its calls and meet `fault`."""
    made = {"FAULTS_ROOT": str(root), "FAULTS_SYNCED": str(synced)}
    return made | ({"FAULTS_LOG": str(log)} if log else {}) | ({"FAULTS_AT": str(fault)} if fault else {})


def recorded(log: Path) -> Counter[tuple[str, str]]:
    """Return how often each call was made, by the glob of its path."""
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter((call, _VARYING.sub("*", path)) for call, _, path in (line.partition(" ") for line in lines))


def has_occurred(log: Path) -> bool:
    """Return whether the fault occurred: a scenario can make a call less often than the first one."""
    return log.exists() and any(line.startswith("!") for line in log.read_text().splitlines())


def note_synced(folder: Path, synced: Path) -> None:
    """Count the present content of `folder` as synced."""
    files = sorted(folder.iterdir())
    (synced / str(folder.stat().st_ino)).write_text("".join(f"{x.stat().st_ino} {x.name}\n" for x in files))
    for file in files:
        (synced / str(file.stat().st_ino)).write_bytes(file.read_bytes())


def cut_power(folder: Path, synced: Path) -> None:
    """Keep only the synced content of `folder`; nothing if the folder itself was not synced."""
    kept = folder.with_name(f"{folder.name}.before-the-cut")
    os.rename(folder, kept)
    folder.mkdir(mode=0o700)
    listing = synced / str(kept.stat().st_ino)
    for line in listing.read_text().splitlines() if listing.exists() else ():
        inode, _, name = line.partition(" ")
        content = synced / inode
        (folder / name).write_bytes(content.read_bytes() if content.exists() else b"")
    shutil.rmtree(kept)
