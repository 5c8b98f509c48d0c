"""A start on a ledger of an older schema, with one fault: afterwards all its leases are there."""

import asyncio
import contextlib
import json
import os
import sqlite3
import tempfile
from pathlib import Path

from checkpoint.database import FILE_NAME, Database
from checkpoint.migrations import MIGRATIONS
from checkpoint.migrations import version as schema_version
from tests.checkpoint.older import LEASED, write_older
from tests.deviceplugin.host import MadeUpHost
from tests.faults.daemon import Daemon
from tests.faults.outcome import Outcome
from tests.faults.shim import Fault, cut_power, environment, has_occurred, note_synced

_START_TIMEOUT = 30.0  # real time for a start
_FAULTY_START_TIMEOUT = 2.0  # seconds for a start that met an error, because no call makes it retry
_STARTS = 3


async def upgrade(
    version: int, fault: Fault | None = None, *, loses_power: bool = False, calls: Path | None = None
) -> Outcome:
    """Start on a ledger of this schema version until it is upgraded. `calls` is the file for the calls."""
    with tempfile.TemporaryDirectory(prefix="u") as name:
        folder, log = Path(name) / "n", Path(name) / "calls"
        for each in (folder, folder / "k", Path(name) / "synced"):
            each.mkdir()
        state = folder / "state"
        write_older(state, version)
        note_synced(state, Path(name) / "synced")
        host = MadeUpHost(Path(name) / "host", "fuse")
        outcome = Outcome([], 0, "", met=False)
        while not _is_current(state):
            if outcome.starts == _STARTS:
                outcome.wrong.append(f"not upgraded after {_STARTS} starts")
                break
            met_before = outcome.starts > 0
            outcome.starts += 1
            made = environment(folder, log, Path(name) / "synced", None if met_before else fault)
            process = _start(folder, host, made)
            ended = asyncio.create_task(process.wait())
            loop = asyncio.get_running_loop()
            deadline = loop.time() + (_START_TIMEOUT if fault is None or met_before else _FAULTY_START_TIMEOUT)
            while not ended.done() and not _is_current(state) and loop.time() < deadline:
                await asyncio.wait([ended], timeout=0.02)  # to check the file meanwhile
            process.terminate()
            await ended
            if loses_power and not met_before:
                cut_power(state, Path(name) / "synced")
        outcome.met = has_occurred(log)
        outcome.log = folder.with_name("errors").read_text(errors="replace")
        if aside := [x.name for x in state.iterdir() if x.name.startswith(f"{FILE_NAME}.")]:
            outcome.wrong.append(f"set aside: {aside}")
        if not outcome.wrong and (found := {(x.api, x.unit) for x in Database(state).peek()}) != LEASED:
            outcome.wrong.append(f"leases {found}")
        if calls is not None and log.exists():
            calls.write_text(log.read_text())
        return outcome


def _is_current(state: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{state / FILE_NAME}?mode=ro", uri=True)) as reader:
            return schema_version(reader) == len(MIGRATIONS)
    except sqlite3.Error:
        return False


def _start(folder: Path, host: MadeUpHost, faults: dict[str, str]) -> Daemon:
    config = folder.with_name("config.yaml")
    settings = {"kubeletRoot": "k", "stateDirectory": "state", "cdiDirectory": "cdi"}
    resources = [{"name": "example.com/fuse", "select": "fuse"}]
    config.write_text(
        json.dumps({"settings": {key: str(folder / x) for key, x in settings.items()}, "resources": resources})
    )
    words = ("run", "--config", str(config), "--root", str(host.root))
    return Daemon(words, os.environ | faults, folder.with_name("errors"))
