"""`nodeplug reload` and `nodeplug check --against`: the changes of a new configuration, before and after it applies."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubelet.node import Node
from nodeplug.cli import main
from nodeplug.control import client
from nodeplug.control import reload as asking
from tests.nodeplug.conftest import StartDaemon, pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest


async def start_and_register(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)


async def test_reload_applies_and_prints_the_changes(daemon: DaemonUnderTest, node: Node) -> None:
    await start_and_register(daemon, node)
    daemon.write({**FUSE, "shares": 3}, KVM)
    result = await daemon.run("reload")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{daemon.path}:\nexample.com/kvm is new\nexample.com/fuse: shares: 2 -> 3\n"
    found = json.loads((await daemon.run("status", "-o", "json")).stdout)
    assert [(x["name"], x["units"]) for x in found["resources"]] == [("example.com/fuse", 3), ("example.com/kvm", 1)]
    assert (await daemon.run("reload")).stdout.startswith(f"{daemon.path}: nothing has changed since 20")


async def test_invalid_file_changes_nothing_and_all_errors_are_printed(daemon: DaemonUnderTest, node: Node) -> None:
    await start_and_register(daemon, node)
    daemon.path.write_text(
        '{"resources": [{"name": "example.com/fuse", "selct": "fuse"}, {"name": "x", "select": "kvm"}]}'
    )
    result = await daemon.run("reload")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{daemon.path}:1:45: unknown key selct; did you mean select?" in result.stderr
    assert f"{daemon.path}:1:72: " in result.stderr  # the place of the name x
    assert result.stderr.endswith("Error: the configuration stays as it was\n")
    assert node.allocatable()["example.com/fuse"] == 2


async def test_effect_on_leases_is_printed_by_check_and_reload(daemon: DaemonUnderTest, node: Node) -> None:
    await start_and_register(daemon, node)
    assert (await node.admit(pod("a"))).phase == "Running"
    daemon.write({"name": "example.com/renamed", "select": "fuse"})
    before = await daemon.run("check", daemon.path, "--against", daemon.state, "--root", daemon.root)
    assert before.exit_code == 0, before.output
    words = "example.com/fuse is not offered any more; its pod keeps it, and no other pod gets misc-fuse of"
    assert words in before.stdout
    assert before.stdout.endswith("\nexample.com/renamed is new\nexample.com/fuse is not offered any more\n")
    assert words in (await daemon.run("reload")).stdout


async def test_changed_keys_are_printed_as_in_the_file(daemon: DaemonUnderTest, node: Node) -> None:
    await start_and_register(daemon, node)
    shares = [{"select": "fuse", "count": 2}, {"count": 3}]
    select = {"all": ["fuse", {"attributes": {"vendor": "10de"}}]}
    daemon.write({"name": FUSE["name"], "select": select, "sharesOf": shares, "containerPath": "/dev/x"}, KVM)
    lines = (await daemon.run("reload")).stdout.splitlines()
    assert 'example.com/fuse: select: "fuse" -> "fuse and vendor 10de"' in lines
    assert 'example.com/fuse: sharesOf: [] -> [{"select":"fuse","count":2},{"count":3}]' in lines
    assert 'example.com/fuse: containerPath: "" -> "/dev/x"' in lines


async def test_check_against_a_daemon_prints_json(daemon: DaemonUnderTest, node: Node) -> None:
    await start_and_register(daemon, node)
    new = daemon.path.with_name("new.yaml")
    new.write_text(json.dumps({"resources": [FUSE], "settings": {"stateDirectory": "/elsewhere"}}))
    command = ("check", new, "--root", daemon.root, "-o", "json", "--against")
    result = await daemon.run(*command, daemon.state)
    assert result.exit_code == 0, result.output
    changes = json.loads(result.stdout)["changes"]
    assert changes["needsRestart"] is True
    assert {"where": "settings", "field": "stateDirectory", "before": f'"{daemon.state}"', "after": '"/elsewhere"'} in (
        changes["fields"]
    )
    nobody = await daemon.run(*command, daemon.state.parent)
    (error,) = json.loads(nobody.stdout)["errors"]
    assert (nobody.exit_code, nobody.stderr, error["line"]) == (4, "", 0)
    assert "no daemon runs with this state directory" in error["message"]
    assert error["message"].endswith("(settings.stateDirectory) with --against")
    assert "nothing has changed" in (await daemon.run("reload")).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", "running", "--state", "/x"], "--against /x asks the daemon of that directory"),
        (["--against", "running", "--node", "n"], "leave out --node to ask the daemon"),
        (["--against", "/x", "--node", "n"], "leave out --node to ask the daemon"),
        (["--against", "running", "--root", "there.gz"], "leave out --root to ask the daemon"),
    ],
)
def test_conflicting_options_are_refused_with_a_hint(options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["check", "f.yaml", *options])
    assert result.exit_code == 2
    assert message in result.stderr


async def test_reload_waits_for_a_daemon_that_restarts(
    start: StartDaemon, socket_dir: Path, tmp_path: Path, node: Node
) -> None:
    await start()
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    path, state = tmp_path / "config0.yaml", tmp_path / "state"
    content = json.loads(path.read_text())

    async def reload(*resources: object, **settings: object) -> Result:
        path.write_text(json.dumps({"settings": {**content["settings"], **settings}, "resources": resources}))
        return await asyncio.to_thread(CliRunner().invoke, main, ["reload", "--state", str(state)])

    result = await reload(FUSE, KVM, rescanSeconds=30)
    assert result.exit_code == 0, result.output
    assert "settings: rescanSeconds: 60 -> 30\nthe daemon restarts with it" in result.stdout
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
    result = await reload(FUSE, {**KVM, "api": "dra"}, rescanSeconds=30)
    assert result.exit_code == 1
    assert "example.com/kvm: DRA needs the API server" in result.stderr
    assert result.stderr.endswith(f"Error: {path}: the configuration stays as it was\n")


async def test_simultaneous_reloads_are_all_answered(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    daemon.write(FUSE, KVM)

    def ask() -> asking.Answer:
        return client.ask(daemon.state, asking.Question(), asking.Answer)

    found = await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(4)))
    assert {x.changes.differences for x in found} <= {("example.com/kvm is new",), ()}
    assert any(x.changes.differences for x in found)


async def test_changed_node_name_requires_a_restart(
    daemon: DaemonUnderTest, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's name selects resources, and its ResourceSlices have the name of the daemon's start."""
    monkeypatch.setenv("NODE_NAME", "before")
    await start_and_register(daemon, node)
    daemon.write(FUSE, KVM)
    for name, needs_restart in (("before", False), ("after", True)):
        monkeypatch.setenv("NODE_NAME", name)
        result = await daemon.run("check", daemon.path, "--against", daemon.state, "-o", "json")
        assert json.loads(result.stdout)["changes"]["needsRestart"] is needs_restart
