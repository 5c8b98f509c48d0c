"""A node that prepares claims."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dra_plugin.preparing.world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path) as running:
        yield running
