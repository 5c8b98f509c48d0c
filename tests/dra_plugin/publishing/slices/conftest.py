"""The API server of these tests."""

from collections.abc import AsyncIterator

import pytest

from tests.dra_plugin.publishing.slices.kit import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A running cluster."""
    async with Cluster() as found:
        yield found
