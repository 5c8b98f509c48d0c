"""The estimate of a list's size is an upper bound of the real messages' sizes."""

import pytest

from deviceplugin.limits import LIST_LIMIT, list_size, list_too_long_reason
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


def encoded(devices: int, shares: int, numa_nodes: int) -> int:
    response = api.ListAndWatchResponse()
    for device in range(devices):
        identity = f"{device:a>63}"
        for share in range(shares):
            unit = response.devices.add(ID=identity if shares == 1 else f"{identity}.{share}", health="Unhealthy")
            unit.topology.nodes.extend(api.NUMANode(ID=1023 - node) for node in range(numa_nodes))
            if not numa_nodes:
                unit.ClearField("topology")
    return response.ByteSize()


@pytest.mark.parametrize(
    ("devices", "shares", "numa_nodes"),
    [(1, 1, 0), (1, 1, 1), (7, 1, 2), (3, 10, 1), (2, 1000, 1), (1, 1, 20), (0, 1, 1)],
)
def test_size_estimate_is_a_close_upper_bound(devices: int, shares: int, numa_nodes: int) -> None:
    real = encoded(devices, shares, numa_nodes)
    assert real <= list_size(devices, shares, numa_nodes) <= real * 1.05


def test_list_over_the_limit_is_refused_with_the_number_that_fits() -> None:
    assert list_size(48_000) < LIST_LIMIT
    assert list_too_long_reason(43_176) == ""
    assert list_too_long_reason(43_177).endswith("the kubelet takes 4194304: at most 43176 devices times shares")
    assert list_too_long_reason(400, 100) == ""
    assert "500 device(s) with 100 share(s)" in list_too_long_reason(500, 100)
