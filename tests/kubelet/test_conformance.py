"""Conformance runs against correct and faulty plugins."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from kubelet.conformance import Check, Conformance

LAST_REQUEST = "continues after bad requests"
FIRST_RESTART, PLUGIN_RESTART = "comes back after restart 1", "comes back after its restart"
SAME_DEVICES = "offers the same devices"
PLUGIN_GROUPS = ["restart of the plugin", "crash of the plugin"]
HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
GO_PLUGIN = Path(os.environ.get("NODEPLUG_BASELINES", Path.home() / ".cache/nodeplug-baselines")) / "goplugin"
LONG_TIMEOUT = 30.0  # seconds
SHORT_TIMEOUT = 1.0  # seconds, the timeout where a test expects one
PAGE = CHECKOUT / "docs" / "testing-a-plugin.md"


async def verify(
    *command: str, timeouts: Mapping[str, float] = MappingProxyType({}), restarts: bool = False
) -> list[Check]:
    """The failures and warnings, without the warnings about slow answers."""
    return [
        check
        for check in await every_check(*command, timeouts=timeouts, restarts=restarts)
        if check.outcome == "fail" or (check.outcome == "warn" and not check.detail.startswith("took "))
    ]


async def every_check(
    *command: str, timeouts: Mapping[str, float] = MappingProxyType({}), restarts: bool = False
) -> list[Check]:
    """All results. The plugin is restarted only with `restarts`, because most tests are about something else.

    `timeouts` maps a check's name to the timeout after this check; `start` is the initial timeout.
    """
    reported: list[Check] = []

    def on_check(check: Check) -> None:
        reported.append(check)
        run.seconds = timeouts.get(check.name, run.seconds)

    run = Conformance(command, timeouts.get("start", LONG_TIMEOUT), on_check, has_plugin_restarts=restarts)
    await run.run()
    assert reported == run.checks
    assert run.is_passed == (not any(check.outcome == "fail" for check in reported))
    return reported


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setenv("GRPC_VERBOSITY", "ERROR")


def without_folder(check: Check) -> str:
    """Return the detail of a check, with the kubelet's temporary folder as DIR."""
    return re.sub(r"/\S+/device-plugins", "DIR", check.detail)


def command_for(behaviour: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / "plugin_process.py"), "{dir}", behaviour)


async def test_correct_plugin_passes() -> None:
    assert await verify(*command_for("correct"), restarts=True) == []


async def test_example_plugin_passes() -> None:
    example = CHECKOUT / "examples/device-plugin/plugin.py"
    assert await verify(sys.executable, str(example), "{dir}", restarts=True) == []


async def test_unregistered_plugin_fails() -> None:
    (check,) = await verify(*command_for("unregistered"), timeouts={"start": SHORT_TIMEOUT})
    assert (check.group, check.outcome) == ("registration", "fail")
    expected = (
        "nothing was registered and listed after 1 s; v1beta1.Registration/Register was not called at DIR/kubelet.sock"
    )
    assert without_folder(check) == expected


async def test_command_without_folder_placeholder_fails() -> None:
    (check,) = await verify("sleep", "60", timeouts={"start": SHORT_TIMEOUT})
    assert check.detail.endswith("; the command has no {dir}, which becomes the folder of this socket")


async def test_plugin_without_lasting_list_fails_with_end_of_stream() -> None:
    """The runs are concurrent, because each one waits for its timeout."""
    details = {
        "no-list": "no list of example.com/x came after 15 s",
        "list-fails": "no list of example.com/x came after 15 s; {ended}: rpc error: code = Internal desc = no list",
        "short-stream": "example.com/x was listed, and is gone after 15 s; {ended}: EOF",
        "wrong-folder": "nothing was registered and listed after 15 s; refused example.com/x: the plugin ended its call"
        " of Register before the answer; example.com/x has its endpoint at DIR/p.sock, where nothing listens: serve"
        " below {{dir}} before you register",
    }
    runs = await asyncio.gather(*(verify(*command_for(each), timeouts={"start": 15.0}) for each in details))
    ended = "the stream of example.com/x ended"
    assert [without_folder(check) for (check,) in runs] == [each.format(ended=ended) for each in details.values()]


async def test_refused_plugin_fails_with_the_reason() -> None:
    (check,) = await verify(*command_for("invalid-name"))
    why = 'the ResourceName "kubernetes.io/x" is invalid'
    assert check.detail == f"the command ended with exit code 1; the kubelet had refused kubernetes.io/x: {why}"


async def test_device_without_id_is_reported() -> None:
    assert ("ids of example.com/x", "a device has none") in [
        (x.name, x.detail) for x in await verify(*command_for("empty-id"))
    ]


async def test_duplicate_device_id_is_a_warning() -> None:
    (check,) = await verify(*command_for("duplicate-id"))
    reported = ("ids of example.com/x", "warn", "b is listed 2 times, and is one device to the kubelet")
    assert (check.name, check.outcome, check.detail) == reported


async def test_plugin_without_healthy_device_is_a_warning() -> None:
    (check,) = await verify(*command_for("unhealthy"))
    reported = ("allocation", "warn", "no healthy device, so Allocate is not tested")
    assert (check.name, check.outcome, check.detail) == reported


async def test_names_of_checks_do_not_depend_on_device_count() -> None:
    """Users compare the results of builds by the names of checks."""
    few, many = [[x.name for x in await every_check(*command_for(each))] for each in ("four-devices", "nine-devices")]
    assert few == many
    assert {"a container with one device", "a container with all devices, again"} <= {*few}
    assert "preferred allocation of half of the devices, one of them given" in few


async def test_plugin_that_misses_kubelet_restart_fails() -> None:
    checks = await verify(
        *command_for("ignores-restart"), timeouts={LAST_REQUEST: SHORT_TIMEOUT, FIRST_RESTART: LONG_TIMEOUT}
    )
    assert [(check.name, without_folder(check)) for check in checks] == [
        (
            FIRST_RESTART,
            "still missing: example.com/x after 1 s; v1beta1.Registration/Register was not called at DIR/kubelet.sock,"
            " which is a new socket since the kubelet restarted",
        )
    ]


async def test_plugin_that_a_second_stream_harms_passes_the_restarts() -> None:
    """A kubelet opens one stream after each registration."""
    assert await verify(*command_for("exits-at-second-list")) == []


async def test_plugin_that_does_not_register_after_restart_fails() -> None:
    timeouts = {SAME_DEVICES: SHORT_TIMEOUT, PLUGIN_RESTART: LONG_TIMEOUT}
    check, *_ = await verify(*command_for("registers-once"), timeouts=timeouts, restarts=True)
    assert (check.group, check.name) == ("restart of the plugin", PLUGIN_RESTART)
    assert without_folder(check) == (
        "still missing: example.com/x after 1 s; v1beta1.Registration/Register was not called at DIR/kubelet.sock"
        " since the plugin was started again"
    )


async def test_plugin_that_does_not_allocate_after_a_restart_of_the_kubelet_fails() -> None:
    (check,) = await verify(*command_for("fails-after-restart"), restarts=True)
    assert (check.group, check.name) == ("restarts of the kubelet", "a container with all devices")
    assert "devices are not known" in check.detail


async def test_allocation_that_fails_because_the_plugin_ended_its_list_says_so() -> None:
    (check,) = await verify(*command_for("ends-list-in-allocate"), restarts=True)
    assert (check.group, check.name) == ("restarts of the kubelet", "a container with all devices")
    assert check.detail.endswith("which is unexpected; the stream of example.com/x ended: EOF")


async def test_plugin_that_cannot_replace_its_old_socket_fails() -> None:
    """The command is a shell, which ends without its child. The child is killed and leaves the socket."""
    script = '"$@" & wait $!'
    (check,) = await verify("sh", "-c", script, "-", *command_for("exits-if-socket-exists"), restarts=True)
    assert check.detail == (
        "the command, which was started again, ended with exit code 6; the socket p.sock, which an earlier start has"
        " left, was there when it started again; remove it before you listen"
    )


async def test_plugin_with_other_device_ids_after_restart_fails() -> None:
    checks = await verify(*command_for("ids-per-process"), restarts=True)
    lost = r"example.com/x no longer lists \d+, which a container has: others can get the same hardware"
    assert [check.group for check in checks if re.fullmatch(lost, check.detail)] == PLUGIN_GROUPS


async def test_plugin_with_other_cdi_names_after_restart_fails() -> None:
    checks = await verify(*command_for("cdi-name-per-process"), restarts=True)
    others = r"other CDI names; a container that restarts uses those from before: example.com/x=\d+"
    assert [check.group for check in checks if re.fullmatch(others, check.detail)] == PLUGIN_GROUPS


async def test_plugin_that_serves_after_its_command_ended_is_reported(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f'setsid "$@" & echo $! > {pid}; wait'
    try:
        timeouts = {SAME_DEVICES: SHORT_TIMEOUT}
        checks = await verify("sh", "-c", script, "-", *command_for("correct"), timeouts=timeouts, restarts=True)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    still = "it is still connected 1 s after its end: another process serves its socket"
    assert (checks[0].name, checks[0].detail) == (PLUGIN_RESTART, still)


async def test_plugin_that_does_not_answer_allocate_fails() -> None:
    """A kubelet would wait for the plugin without a limit, and admit no other pod."""
    first = "a container with one device"
    checks = await verify(*command_for("hangs-in-allocate"), timeouts={"options": SHORT_TIMEOUT, first: LONG_TIMEOUT})
    assert [(check.name, check.outcome, check.detail) for check in checks] == [
        (first, "fail", "no answer after 1 s; no other pod is admitted meanwhile")
    ]


async def test_plugin_that_removes_kubelet_socket_fails() -> None:
    checks = await verify(*command_for("removes-all-files"), restarts=True)
    removed = "it has removed DIR/kubelet.sock; no plugin can register until the kubelet starts again"
    assert [(check.name, check.outcome, without_folder(check)) for check in checks] == [
        (PLUGIN_RESTART, "fail", removed),
        ("leaves the kubelet its socket", "fail", "no plugin can register until the kubelet starts again"),
    ]


async def test_plugin_that_allocates_unknown_device_fails() -> None:
    checks = await verify(*command_for("accepts-unknown"))
    assert [(check.name, check.detail) for check in checks] == [("an unknown device is refused", "it was allocated")]


async def test_invalid_allocation_answers_are_reported() -> None:
    checks = await verify(*command_for("invalid-answers"))
    found = {(check.name, check.outcome, check.detail) for check in checks}
    assert len({(check.group, check.name) for check in checks}) == len(checks), "a report for CI has each once"
    assert ("the answer for the runtime", "fail", "mount 'relative' -> '' is not absolute") in found
    assert ("preferred allocation of one device", "warn", "2 device(s) instead of 1") in found


async def test_missing_command_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await verify("/nobody/here")


async def test_plugin_that_exits_at_start_fails_with_exit_code() -> None:
    (check,) = await verify("sh", "-c", "exit 7")
    assert (check.name, check.detail) == ("still runs", "the command ended with exit code 7")


async def test_killed_plugin_fails_with_signal_name() -> None:
    (check,) = await verify("sh", "-c", "kill -9 $$")
    assert check.detail == "the command ended with SIGKILL"


@pytest.mark.skipif(not GO_PLUGIN.exists(), reason=f"the Go plugin is not built: {GO_PLUGIN}")
async def test_foreign_go_plugin_passes() -> None:
    command = (str(GO_PLUGIN), "-dir", "{dir}", "-resources", "2", "-devices", "4")
    assert await verify(*command, restarts=True) == []


async def test_plugin_of_documentation_fails_only_known_checks(folder: Path) -> None:
    (folder / "plugin.py").write_text(code()[0])
    timeouts = {LAST_REQUEST: SHORT_TIMEOUT, FIRST_RESTART: LONG_TIMEOUT}
    checks = await verify(sys.executable, str(folder / "plugin.py"), "{dir}", timeouts=timeouts)
    assert [(check.name, check.outcome) for check in checks] == [
        ("an unknown device is refused", "fail"),
        (FIRST_RESTART, "fail"),
        ("stops on SIGTERM", "warn"),
    ]


def code() -> list[str]:
    """The Python code on the page about testing plugins."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
