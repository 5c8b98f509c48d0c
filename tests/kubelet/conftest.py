"""Short folders: a socket's path must fit into 107 bytes, and pytest's own folders may be longer."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kubelet import Node


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="k") as path:
        yield Path(path)


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[Node]:
    """A node whose kubelet runs."""
    async with Node(folder) as running:
        yield running
