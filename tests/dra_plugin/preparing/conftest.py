"""A node that prepares claims, alone or in a cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.apiserver import Server
from resourceapi.client import AsyncClient
from tests.dra_plugin.preparing.cluster import ApiProxy, Cluster, proxy_to
from tests.dra_plugin.preparing.node import Node, node_in
from tests.dra_plugin.preparing.world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path) as running:
        yield running


@pytest.fixture
def cluster(client: AsyncClient) -> Cluster:
    return Cluster(client)


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[ApiProxy]:
    """The node's connection to the API server."""
    async with proxy_to(server) as found:
        yield found


@pytest.fixture
async def node(socket_dir: Path, proxy: ApiProxy) -> AsyncIterator[Node]:
    async with node_in(socket_dir, proxy.client) as running:
        yield running
