"""What tests of who looks after leases begin with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.checkpoint.build import opened
from tests.checkpoint.node import Node
from tests.running import running


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    async with running(node.reconciler.run()):
        yield node
    await ledger.close()
