"""What the packages show: docstrings, front doors, documented commands."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from click import Context, Group

from nodeplug.cli import main

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(
    path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in ("tests", "bench", "kubeletapi")
)
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_and_public_function_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path} has no docstring"
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name, node in public(tree) if not ast.get_docstring(node)
    ]
    assert not silent


def public(
    tree: ast.Module | ast.ClassDef,
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
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
def test_a_front_door_shows_only_what_it_names(package: str) -> None:
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


def test_every_command_is_documented() -> None:
    pages = " ".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    missing = [command for command in commands(main) if command not in pages and command != "nodeplug demo"]
    assert not missing
