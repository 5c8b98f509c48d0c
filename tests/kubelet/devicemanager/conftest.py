"""Fixtures: a running device manager."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubelet import DEFAULT_VERSION, RELEASES, Version
from kubelet.rpc import Timeouts
from tests.kubelet.kit import LONG_TIMEOUTS, ManagerKit


@pytest.fixture
def kubernetes() -> Version:
    """The manager's Kubernetes release; a test can change it with `parametrize`."""
    return DEFAULT_VERSION


@pytest.fixture
def timeouts() -> Timeouts:
    """The manager's timeouts; a test of a timeout shortens them with `parametrize`."""
    return LONG_TIMEOUTS


@pytest.fixture
async def kit(folder: Path, kubernetes: Version, timeouts: Timeouts) -> AsyncIterator[ManagerKit]:
    """A manager with real sockets and two NUMA nodes."""
    async with ManagerKit(folder, numa_nodes=(0, 1), release=RELEASES[kubernetes], timeouts=timeouts) as started:
        yield started
