"""`nodeplug events`: past events, and new ones."""

import asyncio
import contextlib
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import get_args

import msgspec

from nodeplug.control.client import ask
from nodeplug.control.events import MAX_WAITING, Answer, Question
from nodeplug.control.sockets import connect
from telemetry import EventKind
from telemetry.events import WARNINGS
from tests.nodeplug.control.conftest import FUSE, DaemonUnderTest, cells
from tests.running import until


async def test_table_lists_and_filters_events(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    nothing = await daemon.run("events")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "nothing has happened\n")
    nothing = await daemon.run("events", "--warnings", "--resource", "example.com/fuse")
    assert nothing.stderr == "nothing to warn of has happened to example.com/fuse\n"
    log = daemon.telemetry.events
    log.record("registered", "the kubelet has accepted the resource", resource="example.com/fuse")
    for _ in range(3):
        log.record("refused", "it is\x1b[31m hot", resource="example.com/gpu", device="gpu-0")
    rows = cells((await daemon.run("events")).stdout)
    assert rows[0] == ["WHEN", "WHAT", "RESOURCE", "DEVICE", "MESSAGE"]
    assert rows[1][2:5] == ["registered", "example.com/fuse", "-"]
    assert rows[2][2:] == ["refused", "example.com/gpu", "gpu-0", "it", "is\\x1b[31m", "hot", "(3", "times)"]
    (_, only) = cells((await daemon.run("events", "--warnings")).stdout)
    assert only == rows[2]
    (_, only) = cells((await daemon.run("events", "--resource", "example.com/fuse")).stdout)
    assert only == rows[1]


async def test_json_has_every_field_of_an_event(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    daemon.telemetry.events.record("unplugged", "is gone", resource="a/b", device="d", holder="pod/default/p/c")
    (found,) = (await daemon.json("events"))["events"]
    assert found | {"time": 0} == {
        "number": 1,
        "time": 0,
        "kind": "unplugged",
        "message": "is gone",
        "resource": "a/b",
        "device": "d",
        "holder": "pod/default/p/c",
        "count": 1,
    }
    assert (await daemon.json("events", "--resource", "a/b"))["events"] == [found]
    assert (await daemon.json("events", "--resource", "example.com/fuse"))["events"] == []  # although it is offered


async def test_missing_daemon_is_an_error(daemon: DaemonUnderTest) -> None:
    result = await daemon.run("events", "--follow")
    assert (result.exit_code, "no daemon runs with this state directory" in result.stderr) == (4, True)


async def test_follow_prints_new_events_and_waits_for_a_stopped_daemon(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    log = daemon.telemetry.events
    log.record("healthy", "one")
    async with followed(daemon.state) as (lines, errors):
        assert json.loads(await lines.readline())["message"] == "one"
        await until(lambda: log.waiting)
        log.record("healthy", "two")
        assert json.loads(await lines.readline())["message"] == "two"
        await until(lambda: log.waiting)
        began = asyncio.get_running_loop().time()
        await daemon.stop()
        assert asyncio.get_running_loop().time() - began < 2.5  # the follower delayed no other command
        assert (await errors.readline()).startswith(b"waiting for the daemon: ")


@contextlib.asynccontextmanager
async def followed(state: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamReader]]:
    """Run `nodeplug events --follow` for the block; Ctrl-C ends it."""
    # SIGINT is ignored if the tests run in the background
    command = ("env", "--default-signal=INT", sys.executable, "-m", "nodeplug", "events", "--follow", "-o", "json")
    process = await asyncio.create_subprocess_exec(*command, "--state", str(state), stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process.stdout, process.stderr
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_followers_that_never_read_leave_connections_for_others(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    with waiting(daemon.state) as started:
        await asyncio.to_thread(started)
        await until(lambda: daemon.telemetry.events.waiting == MAX_WAITING)
        result = await daemon.run("events")
        assert result.exit_code == 0
        result = await daemon.run("events", "--follow")
        assert (result.exit_code, "others follow the events already" in result.stderr) == (1, True)
        for number in range(1000):
            daemon.telemetry.events.record("healthy", str(number))
        assert (await daemon.run("leases", "list")).exit_code == 0


@contextlib.contextmanager
def waiting(state: Path) -> Iterator[Callable[[], None]]:
    """Open the maximum number of followers, none of which reads."""
    with contextlib.ExitStack() as stack:

        def start() -> None:
            for _ in range(MAX_WAITING):
                connection = stack.enter_context(connect(state, 30))
                connection.sendall(msgspec.json.encode(Question(wait=60.0)) + b"\n")

        yield start


async def test_event_numbers_of_another_log_are_ignored(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    log = daemon.telemetry.events
    for number in range(3):
        log.record("healthy", str(number))

    async def found(question: Question) -> tuple[list[str], bool]:
        answer = await asyncio.to_thread(ask, daemon.state, question, Answer)
        return [event.message for event in answer.events], answer.is_incomplete

    assert await found(Question(2, log.began)) == (["2"], False)
    assert await found(Question(2, log.began - 1)) == (["0", "1", "2"], False)
    for number in range(1000):
        log.record("healthy", str(number))
    messages, is_incomplete = await found(Question(2, log.began))
    assert (messages[-1], is_incomplete) == ("999", True)


def test_monitoring_page_lists_every_event_kind() -> None:
    page = (Path(__file__).parents[3] / "docs/monitoring.md").read_text()
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (warning|info) \|", page.partition("## Events")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert rows == [(kind, "warning" if kind in WARNINGS else "info") for kind in get_args(EventKind)]
