"""Fixtures: a manager and a node for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubelet import DEFAULT_VERSION, RELEASES, Version
from tests.kubelet.dramanager.kit import Kit, Lab


@pytest.fixture
def kubernetes() -> Version:
    """The Kubernetes release of the manager or node; a test can change it with `parametrize`."""
    return DEFAULT_VERSION


@pytest.fixture
async def kit(folder: Path, kubernetes: Version) -> AsyncIterator[Kit]:
    """A running DRA manager."""
    async with Kit(folder, release=RELEASES[kubernetes]) as made:
        yield made


@pytest.fixture
async def lab(folder: Path, kubernetes: Version) -> AsyncIterator[Lab]:
    """A node with a running kubelet."""
    async with Lab(folder, kubernetes=kubernetes) as made:
        yield made
