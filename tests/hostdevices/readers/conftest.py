"""The made-up machine, built once for all tests that only read it, and an empty tree for other tests."""

from pathlib import Path

import pytest

from hostdevices import Inventory, scan
from tests.hostdevices.machine import build_machine
from tests.hostdevices.tree import Tree


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The machine with one device of every kind. Tests must not change it."""
    return build_machine(tmp_path_factory.mktemp("machine") / "root")


@pytest.fixture(scope="session")
def inventory(machine: Tree) -> Inventory:
    """The inventory of the machine."""
    return scan(machine.host)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty tree, to add devices to."""
    return Tree(tmp_path / "root")
