"""The API server of these tests."""

from collections.abc import AsyncIterator

import pytest

from tests.dra_plugin.publishing.slices.kit import Stand


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    """A running cluster."""
    async with Stand() as found:
        yield found
