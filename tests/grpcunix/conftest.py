"""Fixtures: servers and channels of both transports, in all combinations."""

import pytest

from grpcunix import Transport

TRANSPORTS: list[Transport] = ["builtin", "grpcio"]


@pytest.fixture(params=TRANSPORTS)
def serving(request: pytest.FixtureRequest) -> Transport:
    """The server's transport."""
    found: Transport = request.param
    return found


@pytest.fixture(params=TRANSPORTS)
def calling(request: pytest.FixtureRequest) -> Transport:
    """The channel's transport."""
    found: Transport = request.param
    return found
