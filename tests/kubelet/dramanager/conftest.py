"""A manager, and a node, for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kubelet.dramanager.kit import Kit, Lab


@pytest.fixture
async def kit(folder: Path) -> AsyncIterator[Kit]:
    """A DRA manager that runs."""
    async with Kit(folder) as made:
        yield made


@pytest.fixture
async def lab(folder: Path) -> AsyncIterator[Lab]:
    """A node whose kubelet runs."""
    async with Lab(folder) as made:
        yield made
