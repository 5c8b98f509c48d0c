"""The packages' interface: docstrings, public names, documented commands."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from click import Command, Context, Group

from nodeplug.cli import main

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(
    path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in ("tests", "bench", "kubeletapi")
)
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_modules_and_public_functions_have_docstrings() -> None:
    definitions: list[tuple[str, str, bool]] = []
    bases: dict[str, set[str]] = {}
    for path in MODULES:  # one tree at a time: all of them together slow down the garbage collector
        tree = ast.parse(path.read_text())
        definitions.append((f"{path.relative_to(ROOT)}:1", "the module", is_documented(tree)))
        for name, node in public(tree):
            definitions.append((f"{path.relative_to(ROOT)}:{node.lineno}", name, is_documented(node)))
            if isinstance(node, ast.ClassDef):
                bases.setdefault(name, set()).update(x.id for x in node.bases if isinstance(x, ast.Name))
    documented = {name for _, name, has_docstring in definitions if has_docstring}

    def inherits(name: str) -> bool:
        """Return whether a method without a docstring implements a documented method of a base class."""
        form, _, method = name.rpartition(".")
        return any(f"{base}.{method}" in documented or inherits(f"{base}.{method}") for base in bases.get(form, ()))

    assert [
        f"{where} {name}" for where, name, has_docstring in definitions if not has_docstring and not inherits(name)
    ] == []


def is_documented(node: ast.Module | Definition) -> bool:
    return bool(ast.get_docstring(node, clean=False))


def public(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, Definition]]:
    for node in tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        decorators = {d.id if isinstance(d, ast.Name) else getattr(d, "attr", "") for d in node.decorator_list}
        if decorators & {"overload", "setter"}:
            continue
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{name}", inner) for name, inner in public(node))


@pytest.mark.parametrize("package", PACKAGES)
def test_package_has_a_py_typed_marker(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_package_exports_are_sorted_and_exist(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__doc__
    assert list(module.__all__) == sorted(
        module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
    for name in module.__all__:
        getattr(module, name)


def commands(group: Group, prefix: str = "nodeplug") -> Iterator[str]:
    context = Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, Group):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def command_of(line: str) -> Command:
    """Return the command at the beginning of a line."""
    group: Command = main
    for word in line.split()[1:]:
        assert isinstance(group, Group)
        command = group.get_command(Context(group), word)
        assert command is not None, line
        group = command
    return group


@pytest.mark.parametrize("line", list(commands(main)))
def test_help_of_every_command_has_valid_examples(line: str) -> None:
    lines = (command_of(line).epilog or "").splitlines()
    assert lines[:2] == ["\b", "Examples:"]
    assert any(each.startswith(f"  {line}") for each in lines)
    check_commands("\n".join(("```sh", *lines[2:], "```")))


def test_every_command_is_documented() -> None:
    pages = " ".join(path.read_text() for path in PAGES)
    missing = [command for command in commands(main) if command not in pages and command != "nodeplug demo"]
    assert not missing


def shown(text: str) -> Iterator[list[str]]:
    """Yield the words of each of our commands on a page, up to a pipe, a comment or the program to run."""
    code = [
        *re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL),
        *re.findall(r"`([^`\n]+)`", text),
    ]
    for line in "\n".join(code).replace("\\\n", " ").splitlines():
        for command in re.findall(r"(?:^|[|&;$] *|python -m )nodeplug ([^|&;#>]*)", line):
            yield command.partition(" -- ")[0].split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_pages_exist_with_their_options(page: Path) -> None:
    check_commands(page.read_text())


def check_commands(text: str) -> None:
    for words in shown(text):
        line = f"nodeplug {' '.join(words)}"
        command: Command = main
        while words and isinstance(command, Group):
            inner = command.get_command(Context(command), words.pop(0))
            assert inner is not None, line
            command = inner
        options = {
            "--help",
            *(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)),
        }
        assert {word.strip("[]") for word in words if word.strip("[]").startswith("-")} <= options, line
