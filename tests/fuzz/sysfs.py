"""A machine with random file contents: every reader finds devices or names the faulty file."""

import functools
import logging
import tempfile
from pathlib import Path
from random import Random

from hostdevices import Host, Version
from hostdevices.capture import capture
from hostdevices.readers import READERS
from hostdevices.recording import Entry, Recording
from hostdevices.scan import Scanner
from tests.fuzz.mutation import mutated
from tests.hostdevices.machine import build_machine

_WORDS = (b"\x1b[31m", b"\n", b"\0", b"0x", b"-1", b"0000:00:00.0", b"=", b"MAJOR=", b"DEVNAME=../x", b"..", b"/")


@functools.cache
def _machine() -> tuple[Entry, ...]:
    with tempfile.TemporaryDirectory() as folder:
        return tuple(capture(build_machine(Path(folder)).host))


def readers(seed: int) -> str:
    """Run one reader on the machine, with some files removed, damaged or replaced by links elsewhere."""
    source = Random(seed)
    entries = {entry.path: entry for entry in _machine()}
    paths = list(entries)
    texts = [entry.content.encode(errors="replace") for entry in entries.values() if entry.what == "text"]
    for path in source.sample(paths, source.choice((1, 5, 50))):
        old = entries[path]
        match source.randrange(4):
            case 0:
                del entries[path]
            case 1 if old.what == "link":
                entries[path] = Entry(path, "link", source.choice(("/", "..", ".", "/etc", path, source.choice(paths))))
            case _ if old.what == "text":
                data = mutated(source, [old.content.encode(errors="replace"), source.choice(texts)], _WORDS)
                entries[path] = Entry(path, "text", data.decode(errors="replace"))
            case _:
                entries[path] = Entry(path, "there")
    reader = source.choice(READERS)
    log = logging.getLogger("hostdevices")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        found = Scanner(Host(tree=Recording(entries.values())), [reader]).scan()
    finally:
        log.setLevel(level)
    for problem in found.problems:
        assert not str(problem).startswith(f"reader {reader.kind}") or "Error" not in problem.reason, problem
    for device in found.devices.values():
        assert len(device.attributes) <= 32, device.id
        for value in device.attributes.values():
            assert isinstance(value, bool | int | str | Version)
            assert not isinstance(value, str) or value.isprintable(), (device.id, value)
    return "problems" if found.problems else "devices" if found.devices else "nothing"
