"""Fixtures with short paths: a socket's path has at most 107 bytes, and pytest's own folders can be longer."""

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
    """A node with a running kubelet."""
    async with Node(folder) as running:
        yield running
