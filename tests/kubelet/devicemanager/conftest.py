"""A device manager that runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kubelet.kit import ManagerKit


@pytest.fixture
async def kit(folder: Path) -> AsyncIterator[ManagerKit]:
    """A manager on real sockets, with two NUMA nodes."""
    async with ManagerKit(folder, numa_nodes=(0, 1)) as started:
        yield started
