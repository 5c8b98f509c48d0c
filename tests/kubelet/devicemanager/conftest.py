"""A device manager that runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubelet import DEFAULT_VERSION, RELEASES, Version
from tests.kubelet.kit import ManagerKit


@pytest.fixture
def kubernetes() -> Version:
    """Whose manager it is; a test may choose with `parametrize`."""
    return DEFAULT_VERSION


@pytest.fixture
async def kit(folder: Path, kubernetes: Version) -> AsyncIterator[ManagerKit]:
    """A manager on real sockets, with two NUMA nodes."""
    async with ManagerKit(folder, numa_nodes=(0, 1), release=RELEASES[kubernetes]) as started:
        yield started
