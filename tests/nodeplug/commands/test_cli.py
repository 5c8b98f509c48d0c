"""The whole command line: help, messages about mistyped words, and shell completion."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nodeplug.cli import main


def subcommands(group: click.Group) -> dict[str, click.Command]:
    context = click.Context(group)
    return {name: command for name in group.list_commands(context) if (command := group.get_command(context, name))}


def all_commands(group: click.Group, *above: str) -> dict[tuple[str, ...], click.Command]:
    """Return all commands by their words."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name, command in subcommands(group).items():
        found[*above, name] = command
        if isinstance(command, click.Group):
            found |= all_commands(command, *above, name)
    return found


def test_command_without_its_library_says_what_to_install() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from nodeplug.cli import main; main(['apiserver'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = "this command needs uvicorn, which is not installed: pip install 'nodeplug[controlplane]'"
    assert (done.returncode, done.stderr) == (1, f"Error: {expected}\n")


def test_help_lists_every_command_without_truncation() -> None:
    for words, command in all_commands(main).items():
        if isinstance(command, click.Group):
            text = CliRunner().invoke(main, [*words, "--help"]).stdout
            assert "..." not in text.partition("Commands:")[2]
            assert all(f"\n  {name} " in text for name in subcommands(command))
    overview = CliRunner().invoke(main, ["--help"]).stdout
    assert all(f"\n  {name} " in overview for name in subcommands(main))
    assert "..." not in overview.partition("Options:")[2]


OTHER_OUTPUTS = {
    "apiserver": "serves until it is stopped",
    "bundle": "writes an archive",
    "capture": "writes an archive",
    "classes": "prints manifests for kubectl",
    "completion": "prints a program for a shell",
    "convert": "prints a configuration file",
    "demo": "shows its steps as they happen",
    "k8srm apiserver": "serves until it is stopped",
    "k8srm definitions": "prints manifests for kubectl",
    "k8srm gen": "prints pools as the prototype does, or manifests for kubectl (-o list, manifests)",
    "k8srm schedule": "prints the prototype's report",
    "kubelet hold": "answers nothing but whether it is done",
    "kubelet release": "answers nothing but whether it is done",
    "kubelet remove": "answers nothing but whether it is done",
    "kubelet restart": "answers nothing but whether it is done",
    "kubelet run": "prints events until it is stopped",
    "kubelet verify": "prints a report for people or for CI (-o text, json, junit)",
    "run": "logs until it is stopped",
    "ui": "serves until it is stopped",
}
"""Commands that print no table, with the reason."""


def test_every_command_with_a_table_offers_wide_json_and_yaml() -> None:
    commands = {" ".join(words): x for words, x in all_commands(main).items() if not isinstance(x, click.Group)}
    outputs = {
        name: {
            tuple(option.type.choices)
            for option in command.params
            if "--output" in option.opts and isinstance(option.type, click.Choice)
        }
        for name, command in commands.items()
    }
    tables = {name for name, found in outputs.items() if found == {("table", "wide", "json", "yaml")}}
    assert tables | OTHER_OUTPUTS.keys() == commands.keys()
    assert not tables & OTHER_OUTPUTS.keys()


def test_every_command_has_an_example() -> None:
    for words, command in all_commands(main).items():
        assert "nodeplug " + " ".join(words) in (command.epilog or "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["statsu"], "No such command 'statsu'. Did you mean 'status'?"),
        (["leases", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["leases", "xyz"], "No such command 'xyz'. There are list, release, show."),
    ],
)
def test_unknown_command_error_names_valid_commands(words: list[str], message: str) -> None:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["completion", "bsh"], "'bsh' is not one of 'bash', 'fish', 'zsh'. Did you mean 'bash'?"),
        (["convert", "--from", "nvdia", "x"], "'sriov'. Did you mean 'nvidia'?"),
        (["status", "-o", "xml"], "'xml' is not one of 'table', 'wide', 'json', 'yaml'."),
    ],
)
def test_invalid_option_value_error_names_valid_values(words: list[str], message: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"{message}\n")


def test_packages_in_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    for name in ("hostdevices", "kubelet", "checkpoint"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    command = [sys.executable, "-m", "nodeplug", "kubelet", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["discover"], ["--help"], ["check", "--help"]])
def test_full_stdout_is_reported_without_a_traceback(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nodeplug", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "Error: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize("command", ["check /dev/stdin", "discover", "--help"])
def test_closed_stdout_is_ignored(command: str) -> None:
    asking = f"exec {sys.executable} -m nodeplug {command} >&-"
    config = '{"resources": [{"name": "example.com/fuse", "select": "fuse"}]}'
    done = subprocess.run(["sh", "-c", asking], input=config, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _environment() -> dict[str, str]:
    """An environment whose PATH contains the `nodeplug` of this checkout."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_script_is_valid_in_every_shell(shell: str, tmp_path: Path) -> None:
    text = CliRunner().invoke(main, ["completion", shell]).stdout
    assert "_NODEPLUG_COMPLETE" in text
    if shutil.which(shell):
        (tmp_path / "completion").write_text(text)
        subprocess.run([shell, "-n", str(tmp_path / "completion")], check=True)


def test_bash_completes_commands_and_values() -> None:
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("no bash here")
    code = """
        eval "$(nodeplug completion bash)"
        complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _nodeplug_completion nodeplug; }
        complete_words nodeplug st; echo "${COMPREPLY[@]}"
        complete_words nodeplug status -o j; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run([bash, "-c", code], env=_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["status", "json"]


def test_fish_completes_commands_with_descriptions() -> None:
    fish = shutil.which("fish")
    if not fish:
        pytest.skip("no fish here")
    code = 'nodeplug completion fish | source; complete -C "nodeplug withh"; complete -C "nodeplug leases r"'
    done = subprocess.run([fish, "-c", code], env=_environment(), capture_output=True, text=True, check=True)
    lines = dict(line.split("\t") for line in done.stdout.splitlines())
    assert list(lines) == ["withhold", "release"]
    assert lines["release"].startswith("End the lease of UNIT by hand; for a unit of a claim")


def test_zsh_completes_commands_and_values(tmp_path: Path) -> None:
    """From a file in `fpath`; only the line editor of a terminal uses it."""
    zsh = shutil.which("zsh")
    if not zsh:
        pytest.skip("no zsh here")
    (tmp_path / "_nodeplug").write_text(CliRunner().invoke(main, ["completion", "zsh"]).stdout)
    setup = (
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word; print re''ady\n"
    )
    terminal, other_end = pty.openpty()
    shell = subprocess.Popen([zsh, "-f", "-i"], env=_environment(), stdin=other_end, stdout=other_end, stderr=other_end)
    os.close(other_end)

    def answer(typed: str, until: str) -> str:
        os.write(terminal, typed.encode())
        seen = ""
        while until not in seen:
            assert select.select([terminal], [], [], 15)[0], seen
            seen += os.read(terminal, 4096).decode()
        return seen

    try:
        answer(setup, "ready")
        answer("nodeplug withh\t", "old")
        answer("\x15nodeplug leases rel\t", "ease")
        answer("\x15nodeplug status -o y\t", "aml")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def test_options_in_seconds_refuse_nan_inf_and_negatives() -> None:
    """A plain `float` would accept nan and inf."""
    options = [
        (words, each)
        for words, command in all_commands(main).items()
        for each in command.params
        if "float" in each.type.name
    ]
    assert {each.name for _, each in options} >= {"timeout", "seconds", "api_delay"}
    for words, each in options:
        for value in ("nan", "inf", "-1"):
            with pytest.raises(click.BadParameter) as caught:
                each.type.convert(value, each, click.Context(click.Command("x")))
            assert value in caught.value.message, (words, each.name)
