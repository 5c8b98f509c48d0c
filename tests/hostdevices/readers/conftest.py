"""The made-up machine, built once for all tests that only read it, and an empty tree for the others."""

from pathlib import Path

import pytest

from hostdevices import Inventory, scan
from tests.hostdevices.machine import build_machine
from tests.hostdevices.tree import Tree


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The machine with one device of every kind. Read only."""
    return build_machine(tmp_path_factory.mktemp("machine") / "root")


@pytest.fixture(scope="session")
def inventory(machine: Tree) -> Inventory:
    """What a scan finds on the machine."""
    return scan(machine.host)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty tree to build in."""
    return Tree(tmp_path / "root")
