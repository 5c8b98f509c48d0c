"""What tests of who looks after leases begin with."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.checkpoint.build import opened
from tests.checkpoint.node import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    running = asyncio.ensure_future(node.reconciler.run())
    yield node
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()
