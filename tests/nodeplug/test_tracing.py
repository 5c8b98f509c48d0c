"""Traces: what a collector receives, and that it never delays the daemon."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import grpc.aio
import pytest

from kubelet.node import Node
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from nodeplug.tracing import start_tracing
from telemetry import Telemetry
from telemetry.trace import NO_TRACER
from tests.controlplane.scheduler.kit import Json, claim, request
from tests.nodeplug.cluster import NODE, using
from tests.nodeplug.conftest import StartDaemon, ended, pod, until_logged
from tests.nodeplug.machine import RESOURCES, Machine
from tests.nodeplug.otlp import collector, environment
from tests.threads import no_more_threads

ALLOCATE = "v1beta1.DevicePlugin/Allocate"
DRA = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def _allocate(socket: Path, unit: str) -> None:
    """Call Allocate as a client whose own call is traced."""
    asked = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[unit])])
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(f"/{ALLOCATE}", api.AllocateRequest.SerializeToString)
        await call(asked, timeout=30, metadata=(("traceparent", f"00-{TRACE}-{CALLER}-01"), ("tracestate", "a=b")))


async def test_spans_of_registration_allocation_and_reload(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    async with collector() as collected, Node(socket_dir) as node:
        where = environment(collected.url) | {"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
        process = await start(environment=where, tracing=True, nodeName="n1")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        registered = await collected.span("v1beta1.Registration/Register")
        assert (registered.kind, registered.parent) == ("client", "")
        expected = {"service.name": "nodeplug", "k8s.node.name": "n1", "deployment.environment": "test"}
        assert expected.items() <= collected.resource.items()

        assert (await node.admit(pod("a"))).phase == "Running"
        chosen = await collected.span("v1beta1.DevicePlugin/GetPreferredAllocation")
        allocation = await collected.span(ALLOCATE)
        assert chosen.attributes["nodeplug.devices"] == allocation.attributes["nodeplug.devices"]
        assert (allocation.kind, allocation.parent, allocation.error) == ("server", "", "")
        assert allocation.attributes["nodeplug.resource"] == "example.com/fuse"
        assert allocation.attributes["rpc.method"] == "Allocate"
        assert collected.parts(allocation) == ["commit leases"]

        (socket,) = node.device_plugins.glob("nodeplug-*")
        with pytest.raises(grpc.aio.AioRpcError):
            await _allocate(socket, "nothing")
        refused = await collected.span(ALLOCATE, nodeplug__devices=["nothing"])
        assert (refused.trace, refused.parent) == (TRACE, CALLER)
        assert "not offered here" in refused.error

        path = tmp_path / "config0.yaml"
        path.write_text(path.read_text().replace('"shares": 2', '"shares": 0'))
        process.send_signal(signal.SIGHUP)
        assert "0 is less than 1" in (await collected.span("reload configuration")).error
        process.send_signal(signal.SIGTERM)
        code, errors = await ended(process)
        assert code == 0
        assert "trace" not in errors.replace(str(tmp_path), "")


async def test_spans_of_preparing_and_unpreparing_a_claim(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    async with collector() as collected:
        by_path: Json = {"name": "example.com/thing", "select": {"path": "/dev/thing*"}, "api": "dra"}
        await machine.start(environment(collected.url), resources=[*RESOURCES, by_path], tracing=True)
        await machine.until_published()
        await cluster.create(
            claim("c", request(deviceClassName="kvm.example.com")), using("p", ["mine"], claims={"mine": "c"})
        )
        await cluster.until_phase("p", "Running")
        prepared = await collected.span(f"{DRA}/NodePrepareResources")
        uid = (await cluster.get("ResourceClaim", "c"))["metadata"]["uid"]
        assert {key: value for key, value in prepared.attributes.items() if key.startswith("nodeplug.")} == {
            "nodeplug.claims": ["default/c"],
            "nodeplug.claim_uids": [uid],
            "nodeplug.pods": ["default/p"],
            "nodeplug.devices": ["misc-kvm"],
        }
        assert collected.parts(prepared) == ["read claim", "commit leases", "write CDI and metadata"]
        await cluster.delete("Pod", "p")
        over = await collected.span(f"{DRA}/NodeUnprepareResources")
        assert collected.parts(over) == ["remove CDI and metadata", "restore hardware", "commit leases"]
        assert collected.resource["k8s.node.name"] == NODE
        made = machine.host.root / "dev/new"  # created as by the kernel: with its device number from the start
        made.write_text("c 10:200\n")
        made.rename(made.with_name("thing1"))
        assert (await collected.span("store ResourceSlices")).seconds < 30
        assert (await collected.span("pluginregistration.Registration/NotifyRegistrationStatus")).error == ""


async def test_unreachable_collector_is_logged_once_and_delays_nothing(start: StartDaemon, socket_dir: Path) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never, "127.0.0.1", 0) as silent, Node(socket_dir) as node:
        port = silent.sockets[0].getsockname()[1]
        where = environment(f"http://127.0.0.1:{port}") | {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.1"}
        process = await start(environment=where, tracing=True)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        await until_logged(process, "traces are not delivered")
        for name in ("a", "b"):
            assert (await node.admit(pod(name))).phase == "Running"
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        code, errors = await ended(process)
        assert code == 0
        assert time.monotonic() - began < 8
        assert "traces" not in errors
        assert "opentelemetry" not in errors


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "the protocol grpc"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER=console"),
        ({"OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_unsupported_or_disabled_tracing_is_off(
    variables: dict[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry()
    start_tracing(telemetry, "n1", variables)
    assert telemetry.tracer is NO_TRACER
    assert len(caplog.messages) == bool(says)
    assert says in caplog.text


def test_missing_library_logs_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    telemetry = Telemetry()
    start_tracing(telemetry, "n1", {})
    assert telemetry.tracer is NO_TRACER
    assert "pip install nodeplug[tracing]" in caplog.text


async def test_stop_without_free_threads_raises_no_error() -> None:
    async with collector() as collected:
        telemetry = Telemetry()
        close = start_tracing(telemetry, "n1", environment(collected.url))
        with no_more_threads():
            await close()
        assert telemetry.tracer is NO_TRACER
