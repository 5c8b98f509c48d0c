"""Runs the code of docs/add-a-device-class.md."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hostdevices import Inventory, scan
from hostdevices.readers import READERS, classes
from hostdevices.readers.classes import SmallClass, small_reader
from hostdevices.readers.reader import Reader
from tests.hostdevices.tree import Tree

PAGE = Path(__file__).parents[3] / "docs/add-a-device-class.md"
BLOCKS = dict(re.findall(r"```python\n# (\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL))


@pytest.fixture
def module() -> ModuleType:
    """The file that the page describes."""
    module = ModuleType("gnss")
    exec(compile(BLOCKS["reader"], str(PAGE), "exec"), module.__dict__)
    return module


def scanned(tree: Tree, *readers: Reader) -> Inventory:
    return scan(tree.host, (*READERS, *readers))


def test_documented_test_passes_with_documented_reader(module: ModuleType, tree: Tree) -> None:
    names: dict[str, Any] = {"Tree": Tree, **module.__dict__}
    exec(compile(BLOCKS["test"], str(PAGE), "exec"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test(tree)
    assert "gnss" not in {reader.kind for reader in READERS}, "the page needs another example"
    assert [device.kind for device in scanned(tree, *module.READERS).devices.values()].count("gnss") == 1


def test_documented_row_finds_the_same_device(module: ModuleType, tree: Tree) -> None:
    row = eval(BLOCKS["row"], {**classes.__dict__})
    assert isinstance(row, SmallClass)
    card = tree.pci("0000:05:00.0")
    tree.child(card, "gnss/gnss0", group="class/gnss", node="gnss0", type="SiRF")
    by_row = scanned(tree, small_reader(row)).devices["gnss-0000-05-00-0"]
    by_file = scanned(tree, *module.READERS).devices["gnss-0000-05-00-0"]
    assert (by_row.devnodes, by_row.attributes["model"]) == (by_file.devnodes, by_file.attributes["type"])
