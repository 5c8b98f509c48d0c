"""Messages of commands that fail: structured if structured output was requested, with the same exit code."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nodeplug.cli import main

DAEMON_COMMANDS = ["status", "leases list", "leases show x", "explain x", "events", "reload", "withhold x", "readmit x"]
OTHER_COMMANDS = {
    "discover": (["discover", "--root", "nowhere"], 1),
    "check": (["check", "config.yaml", "--root", "nowhere"], 1),
    "a check of leases": (["check", "config.yaml", "--state", "."], 1),
    "allocate": (["allocate", "nowhere.yaml"], 2),
    "verify": (["kubelet", "verify", "--", "/nowhere/plugin"], 2),
}


def invoked(words: list[str], output: str) -> tuple[int, str, str]:
    at = words.index("--") if "--" in words else len(words)
    result = CliRunner().invoke(main, [*words[:at], "-o", output, *words[at:]])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("resources: []\n")


@pytest.mark.parametrize("words", [*DAEMON_COMMANDS, "dry-run allocate x"])
def test_missing_daemon_error_has_the_same_text_in_every_output(words: str) -> None:
    command = [*words.split(), "--state", "state"]
    code, nothing, text = invoked(command, "wide")
    assert (code, nothing) == (4, "")
    message = text.removeprefix("Error: ").rstrip("\n")
    assert invoked(command, "json") == (4, json.dumps({"errors": [{"message": message}]}, indent=2) + "\n", "")
    code, data, nothing = invoked(command, "yaml")
    assert (code, yaml.safe_load(data), nothing) == (4, {"errors": [{"message": message}]}, "")


@pytest.mark.parametrize(("words", "code"), OTHER_COMMANDS.values(), ids=OTHER_COMMANDS.keys())
def test_error_of_a_command_is_printed_as_json(words: list[str], code: int) -> None:
    found, data, _ = invoked(words, "json")
    (error,) = json.loads(data)["errors"]
    assert (found, bool(error["message"])) == (code, True)


def test_usage_error_is_text_despite_json_output() -> None:
    code, nothing, text = invoked(["status", "--nope"], "json")
    assert (code, nothing) == (2, "")
    assert "No such option" in text


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("kubelet verify -- nowhere", "nowhere: No such file or directory; after -- write the program's path"),
        ("kubelet verify --dra -- ./config.yaml", "./config.yaml: Permission denied; is it a program"),
        (
            "kubelet checkpoint config.yaml",
            "config.yaml: it is not a checkpoint of a kubelet, which is JSON: Expecting",
        ),
    ],
)
def test_unusable_program_or_file_is_named(command: str, message: str) -> None:
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith(f"Error: {message}")
