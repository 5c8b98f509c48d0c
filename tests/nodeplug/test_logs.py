"""An entry of the log is one line, whatever other programs' strings contain."""

import contextlib
import io
import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from nodeplug import log_handler, logs

LONG_TIMEOUT = "\x1b[31m\n" + "x" * 65_536
_TAKES_ROOM = """
import os, random
while True:
    os.write(1, b"o" * random.randrange(1, 4096))
    for _ in range(random.randrange(2_000)):
        pass
"""
_READS = """
import os, select, sys
pipe, logged = map(int, sys.argv[1:])
for _ in range(2_000):
    os.read(pipe, 4096)
    for _ in range(3):
        if not select.select([logged], [], [], 30)[0]:
            os.read(pipe, 65536)
            sys.exit("who logs waits for who reads")
        os.read(logged, 65536)
"""
BEYOND_OTHERS = 1 << 40
"""Bytes; only a sparse file of ours is written there. The limit that simulates a full disk is for the whole process."""
log = logging.getLogger("tests.logs")
pytestmark = pytest.mark.usefixtures("own_logging")


def written(form: logs.LogFormat) -> str:
    stream = io.StringIO()
    logs.setup("info", form, stream)
    log.warning(
        "refused: %s",
        LONG_TIMEOUT,
        extra={"resource": LONG_TIMEOUT, "device": LONG_TIMEOUT, "claim": LONG_TIMEOUT, "holder": LONG_TIMEOUT},
    )
    return stream.getvalue()


def test_text_from_others_stays_in_its_line() -> None:
    text = written("text")
    assert text.count("\n") == 1
    assert text[:-1].isprintable()
    assert r"refused: \x1b[31m\nxxx" in text
    assert r"... claim=\x1b[31m\nxxx" in text
    assert len(text) < 7_000


def test_json_is_bounded_too() -> None:
    line = written("json")
    assert len(line) < 7_000
    entry = json.loads(line)
    assert all(value.isprintable() for value in entry.values())
    assert (len(entry["message"]) < 4_100, len(entry["claim"]) < 600) == (True, True)


def test_what_is_short_stands_as_it_is() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    log.info("claim is prepared", extra={"claim": "default/one:uid"})
    entry = json.loads(stream.getvalue())
    assert (entry["message"], entry["claim"]) == ("claim is prepared", "default/one:uid")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_ends_with_its_error_in_a_line(form: logs.LogFormat) -> None:
    stream = io.StringIO()
    logs.setup("info", form, stream)
    try:
        raise ValueError("\x1b" + "x" * 65_536 + "\n" * 1_000)
    except ValueError:
        log.exception("a call failed")
    assert len(stream.getvalue()) < 60_000
    assert "\x1b" not in stream.getvalue()
    assert "ValueError: " in stream.getvalue()
    assert stream.getvalue().count("\n") <= 102


class Pipe:
    """The read end of a pipe that is standard error."""

    def __init__(self, reader: int, writer: TextIO) -> None:
        os.set_blocking(reader, False)
        self.reader, self.writer = reader, writer

    def become_standard_error(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stderr", self.writer)
            logs.setup("info", "json")

    def read(self) -> str:
        found = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.reader, 65_536):
                found += piece
        return found.decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    with open(writer, "w") as stream:
        pipe = Pipe(reader, stream)
        pipe.become_standard_error()
        yield pipe
    os.close(reader)


def test_who_logs_waits_for_no_reader_and_what_is_lost_is_counted(pipe: Pipe) -> None:
    for number in range(1_000):
        log.info("line %d: %s", number, "x" * 1_000)
    log.error("%s", "y" * 4_000)
    first = pipe.read()
    for _ in range(2):
        log.info("somebody reads again: %s", "z" * 1_000)
    found = [json.loads(line)["message"] for line in (first + pipe.read()).splitlines()]  # no line is cut
    kept = [x for x in found if x.startswith("line ")]
    assert [x.partition(":")[0] for x in kept] == [f"line {number}" for number in range(len(kept))]
    assert len(kept) > 10
    lost = f"{1_001 - len(kept)} lines of the log were lost here: they could not be written"
    assert [x.partition(":")[0] for x in found[len(kept) :]] == [lost.partition(":")[0], *["somebody reads again"] * 2]


def test_what_is_begun_and_lost_outlives_a_new_configuration(pipe: Pipe) -> None:
    for _ in range(200):
        log.info("%s", "x" * 1_000)
    pipe.become_standard_error()
    first = pipe.read()
    log.info("somebody reads again")
    *kept, lost, last = [json.loads(line)["message"] for line in (first + pipe.read()).splitlines()]
    assert lost == f"{200 - len(kept)} lines of the log were lost here: they could not be written"
    assert last == "somebody reads again"


def _can_refuse() -> bool:
    reader, writer = os.pipe()
    try:
        return os.pwritev(writer, [b"x"], -1, os.RWF_NOWAIT) == 1
    except OSError:
        return False
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(not _can_refuse(), reason="this kernel refuses no write to a pipe: Linux 6.4 is the first")
def test_another_process_at_the_same_pipe_takes_the_room_and_nobody_waits_for_it(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_handler, "WRITE_TIMEOUT", 0)  # the writers collide more often
    os.set_blocking(pipe.reader, True)
    logged, beat = os.pipe()
    os.set_blocking(beat, False)
    reads = [sys.executable, "-c", _READS, str(pipe.reader), str(logged)]
    with (
        subprocess.Popen([sys.executable, "-c", _TAKES_ROOM], stdout=pipe.writer) as other,
        subprocess.Popen(reads, pass_fds=(pipe.reader, logged)) as reader,
    ):
        try:
            while reader.poll() is None:
                log.info("%s", "x" * 3_900)
                with contextlib.suppress(BlockingIOError):
                    os.write(beat, b".")
        finally:
            other.kill()
            reader.kill()
    os.close(logged)
    os.close(beat)
    assert reader.returncode == 0


@pytest.mark.parametrize("room", [0, 150])
def test_a_line_that_a_full_disk_cuts_is_ended_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    with (tmp_path / "log").open("w") as file:
        os.truncate(file.fileno(), BEYOND_OTHERS)
        os.lseek(file.fileno(), 0, os.SEEK_END)
        monkeypatch.setattr("sys.stderr", file)
        logs.setup("info", "json")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (BEYOND_OTHERS + room, before[1]))
        try:
            for number in range(3):
                log.info("line %d: %s", number, "x" * 100)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.info("there is room again")
    with (tmp_path / "log").open("rb") as written:
        written.seek(BEYOND_OTHERS)
        *kept, lost, last = [json.loads(line)["message"].partition(":")[0] for line in written]
    assert kept == ["line 0"][: room // 150]
    assert lost == f"{3 - len(kept)} lines of the log were lost here"
    assert last == "there is room again"


def test_a_reader_that_is_gone_is_no_error(pipe: Pipe, capfd: pytest.CaptureFixture[str]) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY), pipe.reader)
    log.warning("to nobody")
    assert capfd.readouterr().err == ""
    assert logs.recent()[-1].message == "to nobody"


def test_a_process_without_standard_error_logs_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    logs.setup()
    log.warning("to nobody at all")
    assert logs.recent()[-1].message == "to nobody at all"


def test_a_warning_is_not_recent_once_its_cause_is_gone() -> None:
    logs.setup("warning", "json", io.StringIO())
    causes = {"one", "two"}
    log.warning("of a moment")
    log.warning("one is missing", extra={"is_current": lambda: "one" in causes})
    log.warning("two is missing", extra={"is_current": lambda: "two" in causes})
    causes.remove("one")
    assert [each.message for each in logs.recent()][-2:] == ["of a moment", "two is missing"]
    causes.add("one")  # this is another time, which is logged again
    assert [each.message for each in logs.recent()][-2:] == ["of a moment", "two is missing"]
