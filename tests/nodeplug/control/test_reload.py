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
from tests.nodeplug.control.conftest import FUSE, KVM, Asked


async def begin(asked: Asked, node: Node) -> None:
    await asked.start(FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)


async def test_what_changed_is_shown_once_it_counts(asked: Asked, node: Node) -> None:
    await begin(asked, node)
    asked.write({**FUSE, "shares": 3}, KVM)
    result = await asked.run("reload")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{asked.path}:\nexample.com/kvm is new\nexample.com/fuse: shares: 2 -> 3\n"
    found = json.loads((await asked.run("status", "-o", "json")).stdout)
    assert [(x["name"], x["units"]) for x in found["resources"]] == [("example.com/fuse", 3), ("example.com/kvm", 1)]
    assert (await asked.run("reload")).stdout.startswith(f"{asked.path}: nothing has changed since 20")


async def test_a_wrong_file_changes_nothing_and_all_faults_are_said(asked: Asked, node: Node) -> None:
    await begin(asked, node)
    asked.path.write_text(
        '{"resources": [{"name": "example.com/fuse", "selct": "fuse"}, {"name": "x", "select": "kvm"}]}'
    )
    result = await asked.run("reload")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{asked.path}:1:45: unknown key selct; did you mean select?" in result.stderr
    assert f"{asked.path}:1:72: " in result.stderr  # the place of the name x
    assert result.stderr.endswith("Error: the configuration stays as it was\n")
    assert node.allocatable()["example.com/fuse"] == 2


async def test_what_it_means_for_pods(asked: Asked, node: Node) -> None:
    await begin(asked, node)
    assert (await node.admit(pod("a"))).phase == "Running"
    asked.write({"name": "example.com/renamed", "select": "fuse"})
    before = await asked.run("check", asked.path, "--against", asked.state, "--root", asked.root)
    assert before.exit_code == 0, before.output
    words = "example.com/fuse is not offered any more; its pod keeps it, and no other pod gets misc-fuse of"
    assert words in before.stdout
    assert before.stdout.endswith("\nexample.com/renamed is new\nexample.com/fuse is not offered any more\n")
    assert words in (await asked.run("reload")).stdout


async def test_fields_have_the_names_and_the_words_of_the_file(asked: Asked, node: Node) -> None:
    await begin(asked, node)
    shares = [{"select": "fuse", "count": 2}, {"count": 3}]
    select = {"all": ["fuse", {"attributes": {"vendor": "10de"}}]}
    asked.write({"name": FUSE["name"], "select": select, "sharesOf": shares, "containerPath": "/dev/x"}, KVM)
    lines = (await asked.run("reload")).stdout.splitlines()
    assert 'example.com/fuse: select: "fuse" -> "fuse and vendor 10de"' in lines
    assert 'example.com/fuse: sharesOf: [] -> [{"select":"fuse","count":2},{"count":3}]' in lines
    assert 'example.com/fuse: containerPath: "" -> "/dev/x"' in lines


async def test_check_against_a_daemon_for_scripts(asked: Asked, node: Node) -> None:
    await begin(asked, node)
    new = asked.path.with_name("new.yaml")
    new.write_text(json.dumps({"resources": [FUSE], "settings": {"stateDirectory": "/elsewhere"}}))
    command = ("check", new, "--root", asked.root, "-o", "json", "--against")
    result = await asked.run(*command, asked.state)
    assert result.exit_code == 0, result.output
    changes = json.loads(result.stdout)["changes"]
    assert changes["startsAnew"] is True
    assert {"where": "settings", "field": "stateDirectory", "before": f'"{asked.state}"', "after": '"/elsewhere"'} in (
        changes["fields"]
    )
    nobody = await asked.run(*command, asked.state.parent)
    (error,) = json.loads(nobody.stdout)["errors"]
    assert (nobody.exit_code, nobody.stderr, error["line"]) == (4, "", 0)
    assert "no daemon runs with this state directory" in error["message"]
    assert error["message"].endswith("(settings.stateDirectory) with --against")
    assert "nothing has changed" in (await asked.run("reload")).stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--against", "running", "--state", "/x"], "--against /x asks the daemon of that directory"),
        (["--against", "running", "--node", "n"], "leave out --node to ask the daemon"),
        (["--against", "/x", "--node", "n"], "leave out --node to ask the daemon"),
        (["--against", "running", "--root", "there.gz"], "leave out --root to ask the daemon"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_type(options: list[str], says: str) -> None:
    result = CliRunner().invoke(main, ["check", "f.yaml", *options])
    assert result.exit_code == 2
    assert says in result.stderr


async def test_a_daemon_that_starts_anew_is_waited_for(
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


async def test_several_ask_at_once_and_each_has_an_answer(asked: Asked) -> None:
    await asked.start(FUSE)
    asked.write(FUSE, KVM)

    def ask() -> asking.Answer:
        return client.ask(asked.state, asking.Question(), asking.Answer)

    found = await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(4)))
    assert {x.changes.differences for x in found} <= {("example.com/kvm is new",), ()}
    assert any(x.changes.differences for x in found)


async def test_a_node_that_has_another_name_by_now_starts_anew(
    asked: Asked, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's name selects resources, and its ResourceSlices have the name of the daemon's start."""
    monkeypatch.setenv("NODE_NAME", "before")
    await begin(asked, node)
    asked.write(FUSE, KVM)
    for name, starts_anew in (("before", False), ("after", True)):
        monkeypatch.setenv("NODE_NAME", name)
        result = await asked.run("check", asked.path, "--against", asked.state, "-o", "json")
        assert json.loads(result.stdout)["changes"]["startsAnew"] is starts_anew
