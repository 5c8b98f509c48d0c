"""Fixtures for tests of the ledger and of the reconciler."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.checkpoint.build import opened
from tests.checkpoint.node import Node
from tests.running import running
from tests.small_disk import mounted


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    async with running(node.reconciler.run()):
        yield node
    await ledger.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "size=2m") as mount:
        yield mount
