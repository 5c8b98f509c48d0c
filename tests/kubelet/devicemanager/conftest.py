"""A device manager that runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubelet import DEFAULT_VERSION, RELEASES, Version
from kubelet.rpc import Timeouts
from tests.kubelet.kit import PATIENT, ManagerKit


@pytest.fixture
def kubernetes() -> Version:
    """Whose manager it is; a test may choose with `parametrize`."""
    return DEFAULT_VERSION


@pytest.fixture
def timeouts() -> Timeouts:
    """How long it waits; a test that waits for what never comes chooses with `parametrize`."""
    return PATIENT


@pytest.fixture
async def kit(folder: Path, kubernetes: Version, timeouts: Timeouts) -> AsyncIterator[ManagerKit]:
    """A manager on real sockets, with two NUMA nodes."""
    async with ManagerKit(folder, numa_nodes=(0, 1), release=RELEASES[kubernetes], timeouts=timeouts) as started:
        yield started
