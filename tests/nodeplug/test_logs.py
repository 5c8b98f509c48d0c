"""An entry of the log is one line, whatever other programs' strings contain."""

import contextlib
import io
import json
import logging
import os
import resource
import select
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from nodeplug import logs
from nodeplug.log_handler import NonBlockingHandler

LONG_TEXT = "\x1b[31m\n" + "x" * 65_536
FILE_OFFSET = 1 << 40
"""Bytes; only a sparse file of ours is written there. The limit that simulates a full disk is for the whole process."""
OTHERS = b"\0"
"""What another process writes to the same pipe."""
log = logging.getLogger("tests.logs")


def written(form: logs.LogFormat) -> str:
    stream = io.StringIO()
    logs.setup("info", form, stream)
    log.warning(
        "refused: %s",
        LONG_TEXT,
        extra={"resource": LONG_TEXT, "device": LONG_TEXT, "claim": LONG_TEXT, "holder": LONG_TEXT},
    )
    return stream.getvalue()


def test_text_entry_is_one_bounded_printable_line() -> None:
    text = written("text")
    assert text.count("\n") == 1
    assert text[:-1].isprintable()
    assert r"refused: \x1b[31m\nxxx" in text
    assert r"... claim=\x1b[31m\nxxx" in text
    assert len(text) < 7_000


def test_json_entry_is_one_bounded_printable_line() -> None:
    line = written("json")
    assert len(line) < 7_000
    entry = json.loads(line)
    assert all(value.isprintable() for value in entry.values())
    assert (len(entry["message"]) < 4_100, len(entry["claim"]) < 600) == (True, True)


def test_short_fields_are_unchanged() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    log.info("claim is prepared", extra={"claim": "default/one:uid"})
    entry = json.loads(stream.getvalue())
    assert (entry["message"], entry["claim"]) == ("claim is prepared", "default/one:uid")


@pytest.mark.parametrize("form", ["text", "json"])
def test_traceback_is_bounded_and_keeps_its_error(form: logs.LogFormat) -> None:
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

    def fill(self) -> None:
        """Write like another process that has the pipe, until there is no space."""
        writer = os.open(f"/proc/self/fd/{self.writer.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, OTHERS)
        os.close(writer)

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


def test_full_pipe_does_not_block_and_lost_lines_are_counted(pipe: Pipe) -> None:
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


def test_lost_lines_are_counted_across_logging_setup(pipe: Pipe) -> None:
    for _ in range(200):
        log.info("%s", "x" * 1_000)
    pipe.become_standard_error()
    first = pipe.read()
    log.info("somebody reads again")
    *kept, lost, last = [json.loads(line)["message"] for line in (first + pipe.read()).splitlines()]
    assert lost == f"{200 - len(kept)} lines of the log were lost here: they could not be written"
    assert last == "somebody reads again"


def _supports_nonblocking_pipe_writes() -> bool:
    reader, writer = os.pipe()
    try:
        return os.pwritev(writer, [b"x"], -1, os.RWF_NOWAIT) == 1
    except OSError:
        return False
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(
    not _supports_nonblocking_pipe_writes(), reason="this kernel refuses no write to a pipe: Linux 6.4 is the first"
)
@pytest.mark.timeout(30)  # a write that blocks never returns
@pytest.mark.parametrize(("polls", "expected"), [(1, "1 lines of the log were lost here"), (2, "a" * 5_000)])
def test_logging_does_not_block_when_another_process_fills_the_pipe(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, polls: int, expected: str
) -> None:
    """The pipe is filled after poll() has reported it writable: before a line, and before its second piece."""
    countdown, poll = iter(range(polls)[::-1]), select.poll

    class PolledTooEarly:
        def __init__(self) -> None:
            self._poll = poll()
            self.register = self._poll.register

        def poll(self, timeout: float) -> list[tuple[int, int]]:
            found = self._poll.poll(timeout)
            if next(countdown, None) == 0:
                pipe.fill()
            return found

    monkeypatch.setattr(select, "poll", PolledTooEarly)
    logger = logging.Logger("pipe")
    logger.addHandler(NonBlockingHandler(pipe.writer.fileno()))
    logger.info("a" * 5_000)
    first = pipe.read()
    logger.info("somebody reads again")
    lines = (first + pipe.read()).replace(OTHERS.decode(), "").splitlines()
    assert [line.partition(":")[0] for line in lines] == [expected, "somebody reads again"]


@pytest.mark.parametrize("room", [0, 150])
def test_line_cut_by_a_full_disk_is_completed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    with (tmp_path / "log").open("w") as file:
        os.truncate(file.fileno(), FILE_OFFSET)
        os.lseek(file.fileno(), 0, os.SEEK_END)
        monkeypatch.setattr("sys.stderr", file)
        logs.setup("info", "json")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_OFFSET + room, before[1]))
        try:
            for number in range(3):
                log.info("line %d: %s", number, "x" * 100)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.info("there is room again")
    with (tmp_path / "log").open("rb") as written:
        written.seek(FILE_OFFSET)
        *kept, lost, last = [json.loads(line)["message"].partition(":")[0] for line in written]
    assert kept == ["line 0"][: room // 150]
    assert lost == f"{3 - len(kept)} lines of the log were lost here"
    assert last == "there is room again"


def test_closed_pipe_raises_no_error(pipe: Pipe, capfd: pytest.CaptureFixture[str]) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY), pipe.reader)
    log.warning("to nobody")
    assert capfd.readouterr().err == ""
    assert logs.recent()[-1].message == "to nobody"


def test_process_without_standard_error_keeps_recent_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    logs.setup()
    log.warning("to nobody at all")
    assert logs.recent()[-1].message == "to nobody at all"


def test_warning_is_not_recent_once_its_cause_is_gone() -> None:
    logs.setup("warning", "json", io.StringIO())
    causes = {"one", "two"}
    log.warning("of a moment")
    log.warning("one is missing", extra={"is_current": lambda: "one" in causes})
    log.warning("two is missing", extra={"is_current": lambda: "two" in causes})
    causes.remove("one")
    assert [each.message for each in logs.recent()][-2:] == ["of a moment", "two is missing"]
    causes.add("one")  # this is another time, which is logged again
    assert [each.message for each in logs.recent()][-2:] == ["of a moment", "two is missing"]
