"""Fixtures: a server in its own thread, and clients for it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.apiserver.running import Http, Running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A server whose garbage collector runs without delay."""
    with Running(collect_after=0.0) as running:
        yield running


@pytest.fixture
def api(server: Running) -> Iterator[Http]:
    """A client of the server, which has no objects yet."""
    server.clear()
    with server.http() as http:
        yield http


@pytest.fixture(scope="session")
def kubectl() -> str:
    """The path of a real kubectl."""
    home = Path(os.environ.get("REALNODE_HOME", Path.home() / ".cache/realnode"))
    built = home / "bin/kubectl"
    found = os.environ.get("KUBECTL") or shutil.which("kubectl") or (str(built) if built.exists() else None)
    if not found:
        pytest.skip("no kubectl: set KUBECTL, or put one into the PATH")
    return found
