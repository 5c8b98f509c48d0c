"""The admission policy for DeviceConfigs in a real API server: it compiles, and decides as in the stand-in."""

import time
from pathlib import Path

import pytest

from tests.device_configs import WRONG, disagreements, install, refusal
from tests.e2e.realserver import BOOT, RealServer, skip_reason

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(skip_reason()), reason=skip_reason())]


def test_policy_in_a_real_server_refuses_invalid_configs(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server:
        client = server.client()
        install(client)
        deadline = time.monotonic() + BOOT
        while not refusal(client, "resourceclaims", WRONG[0][0]):
            assert time.monotonic() < deadline, "the policy is not in force"
            time.sleep(0.1)  # no event reports that the policy is active
        assert list(disagreements(client)) == []
