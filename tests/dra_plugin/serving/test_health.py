"""Health streams: a complete first report, each change once, and no growing backlog."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

from dra_plugin.driver import ClaimRef
from dra_plugin.serving.claims import ClaimSource
from dra_plugin.serving.health import REPORT_TIMEOUT, RESEND_INTERVAL, DeviceHealth, HealthPublisher
from kubeletapi.dra_health.v1 import api_pb2 as v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as v1alpha1
from tests.dra_plugin.conftest import StartPlugin
from tests.dra_plugin.kubelet_end import TIMEOUT, KubeletEnd, NoClaims, kubelet_end
from tests.dra_scenarios import scenario

VERSIONS = pytest.mark.parametrize("api", [v1, v1alpha1], ids=["v1", "v1alpha1"])
NOW = 1_790_000_000
HEALTHY_REPORT = DeviceHealth("pool", "dev0", True, "ok")
UNHEALTHY_REPORT = DeviceHealth("pool", "dev1", False, "overheated")
UNKNOWN = DeviceHealth("pool", "dev2", None)


@pytest.fixture
def board() -> HealthPublisher:
    """A board with a fixed clock, which repeats no report during a test."""
    return HealthPublisher(clock=lambda: NOW, resend=3600)


@pytest.fixture
def claims() -> ClaimSource:
    return NoClaims()


async def next_report(reports: AsyncIterator[Any]) -> list[DeviceHealth]:
    """Return the next report."""
    report = await asyncio.wait_for(anext(reports), TIMEOUT)
    healthy = {v1.UNKNOWN: None, v1.HEALTHY: True, v1.UNHEALTHY: False}
    return [
        DeviceHealth(each.device.pool_name, each.device.device_name, healthy[each.health], each.message)
        for each in report.devices
    ]


@scenario(51)
def test_v1_and_v1alpha1_have_the_same_wire_format() -> None:
    def described(message: Descriptor) -> str:
        proto = DescriptorProto()
        message.CopyToProto(proto)
        return str(proto).replace(".v1alpha1.", ".v1.")

    for name, message in v1.DESCRIPTOR.message_types_by_name.items():
        assert described(message) == described(v1alpha1.DESCRIPTOR.message_types_by_name[name])
    for api in (v1, v1alpha1):
        assert dict(api.HealthStatus.items()) == {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}


@VERSIONS
@scenario(16, 51)
async def test_first_report_has_all_devices(api: Any, board: HealthPublisher, kubelet: KubeletEnd) -> None:
    board.publish([UNHEALTHY_REPORT, UNKNOWN, HEALTHY_REPORT])
    report = await asyncio.wait_for(anext(aiter(kubelet.health(api))), TIMEOUT)

    def expected(health: DeviceHealth, status: int) -> Any:
        return api.DeviceHealth(
            device=api.DeviceIdentifier(pool_name=health.pool, device_name=health.device),
            health=status,
            last_updated_time=NOW,
            health_check_timeout_seconds=REPORT_TIMEOUT,
            message=health.message,
        )

    assert list(report.devices) == [
        expected(HEALTHY_REPORT, api.HEALTHY),
        expected(UNHEALTHY_REPORT, api.UNHEALTHY),
        expected(UNKNOWN, api.UNKNOWN),
    ]


async def test_each_change_is_one_report_of_all_devices(board: HealthPublisher, kubelet: KubeletEnd) -> None:
    board.publish([HEALTHY_REPORT, UNHEALTHY_REPORT])
    reports = aiter(kubelet.health(v1alpha1))
    assert await next_report(reports) == [HEALTHY_REPORT, UNHEALTHY_REPORT]
    recovered = DeviceHealth("pool", "dev1")
    board.publish([recovered, HEALTHY_REPORT])
    assert await next_report(reports) == [HEALTHY_REPORT, recovered]
    board.publish([HEALTHY_REPORT, recovered])  # unchanged, in another order
    board.publish([HEALTHY_REPORT])
    assert await next_report(reports) == [HEALTHY_REPORT]
    board.publish([])
    assert await next_report(reports) == []


async def test_reverted_change_is_not_reported(board: HealthPublisher, kubelet: KubeletEnd) -> None:
    board.publish([HEALTHY_REPORT])
    reports = aiter(kubelet.health(v1))
    assert await next_report(reports) == [HEALTHY_REPORT]
    board.publish([UNHEALTHY_REPORT])
    board.publish([HEALTHY_REPORT])
    board.publish([UNKNOWN])
    assert await next_report(reports) == [UNKNOWN]


async def test_no_report_is_sent_before_the_first_publish(board: HealthPublisher, kubelet: KubeletEnd) -> None:
    reports = aiter(kubelet.health(v1alpha1))
    first = asyncio.create_task(next_report(reports))
    assert await kubelet.unprepare() == {}
    assert not first.done()
    board.publish([HEALTHY_REPORT])
    assert await first == [HEALTHY_REPORT]


async def test_unchanged_report_is_repeated_within_its_timeout(start: StartPlugin) -> None:
    assert RESEND_INTERVAL * 2 < REPORT_TIMEOUT
    board = HealthPublisher(resend=0.001)
    board.publish([HEALTHY_REPORT])
    plugin = await start(health=board)
    async with kubelet_end(plugin.endpoint) as kubelet:
        reports = aiter(kubelet.health(v1alpha1))
        for _ in range(5):
            assert await next_report(reports) == [HEALTHY_REPORT]


async def test_long_message_is_truncated_as_by_the_kubelet(board: HealthPublisher, kubelet: KubeletEnd) -> None:
    board.publish([DeviceHealth("p", "a", False, "ä" * 1024), DeviceHealth("p", "b", False, "ä" * 1025)])
    whole, cut = await next_report(aiter(kubelet.health(v1)))
    assert whole.message == "ä" * 1024
    assert cut.message == "ä" * 1021 + "..."


@scenario(189)
async def test_streams_and_calls_share_a_connection(board: HealthPublisher, kubelet: KubeletEnd) -> None:
    board.publish([HEALTHY_REPORT])
    streams = [aiter(kubelet.health(api)) for api in (v1, v1alpha1, v1alpha1)]
    for reports in streams:
        assert await next_report(reports) == [HEALTHY_REPORT]
    assert await kubelet.unprepare(ClaimRef("default", "c", "uid")) == {"uid": ""}
    board.publish([UNHEALTHY_REPORT])
    for reports in streams:
        assert await next_report(reports) == [UNHEALTHY_REPORT]
    assert board.streams == 3


class NoDeadline:
    """The context of a call without a deadline."""

    def time_remaining(self) -> float | None:
        return None

    def trace_context(self) -> Mapping[str, str]:
        return {}


async def test_slow_reader_gets_only_the_newest_state(board: HealthPublisher) -> None:
    reports = board.node_watch_resources(v1.NodeWatchResourcesRequest(), NoDeadline())
    board.publish([HEALTHY_REPORT])
    assert await next_report(reports) == [HEALTHY_REPORT]
    for healthy in (False, True, None):
        board.publish([DeviceHealth("pool", "dev0", healthy)])
    assert await next_report(reports) == [DeviceHealth("pool", "dev0", None)]
    waiting = asyncio.create_task(next_report(reports))
    board.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert board.streams == 0


@scenario(191)
async def test_stream_cancelled_by_the_kubelet_is_forgotten(board: HealthPublisher, kubelet: KubeletEnd) -> None:
    board.publish([HEALTHY_REPORT])
    for _ in range(3):
        stream = kubelet.health(v1alpha1)
        assert await next_report(aiter(stream)) == [HEALTHY_REPORT]
        stream.cancel()
    last = aiter(kubelet.health(v1alpha1))
    assert await next_report(last) == [HEALTHY_REPORT]
    board.publish([UNHEALTHY_REPORT])
    assert await next_report(last) == [UNHEALTHY_REPORT]
    assert board.streams == 1


async def test_streams_end_without_an_error_when_the_plugin_stops(board: HealthPublisher, start: StartPlugin) -> None:
    board.publish([HEALTHY_REPORT])
    plugin = await start()
    async with kubelet_end(plugin.endpoint) as kubelet:
        stream = kubelet.health(v1alpha1)
        reports = aiter(stream)
        assert await next_report(reports) == [HEALTHY_REPORT]
        await plugin.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(reports)
    assert board.streams == 0
