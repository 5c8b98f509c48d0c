"""A daemon's metrics while it allocates, refuses, and follows its file and its host."""

from collections.abc import Mapping

from kubelet.node import Node
from telemetry import Span, Tracer
from telemetry.trace import RESOURCE, CurrentSpan, SpanKind
from tests.checkpoint.build import lease, opened
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, DaemonUnderTest
from tests.running import until


class Spans(Tracer):
    """Records the resources of spans."""

    def __init__(self) -> None:
        self.finished: list[tuple[str, object]] = []

    def span(
        self, name: str, *, kind: SpanKind = "internal", parent: Mapping[str, str] | None = None, ago: float = 0.0
    ) -> Span:
        return _Remembered(self, name)


class _Remembered(CurrentSpan):
    def __init__(self, spans: Spans, name: str) -> None:
        self._spans, self._name, self._resource = spans, name, object()

    def set(self, name: str, value: object) -> None:
        self._resource = value if name == RESOURCE else self._resource

    def child(self, name: str) -> Span:
        return _Remembered(self._spans, name)

    def finish(self) -> None:
        self._spans.finished.append((self._name, self._resource))


def kinds(daemon: DaemonUnderTest) -> list[str]:
    return [event.kind for event in daemon.telemetry.events.since(0)]


async def test_allocations_refusals_hotplug_and_reloads_are_counted(
    daemon: DaemonUnderTest, node: Node, made_up: MadeUpHost
) -> None:
    by_path = {"name": "example.com/path", "select": {"path": "/dev/thing*"}}
    daemon.write(FUSE, by_path)
    await daemon.start(FUSE, by_path)
    counted = daemon.telemetry
    counted.tracer = spans = Spans()
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    await node.until(lambda: "example.com/path" in node.allocatable(), 30)
    assert kinds(daemon) == ["registered", "registered"]

    assert (await node.admit(pod("a"))).phase == "Running"
    assert (sum(counted.allocate.counts), sum(counted.commit.counts)) == (1, 1)

    made_up.remove_node("fuse")  # the device is no longer the offered one
    assert (await node.admit(pod("b"))).phase == "Failed"
    assert counted.refusals == {("device-plugin", "not-ready"): 1}
    refused = next(x for x in counted.events.since(0) if x.kind == "refused")
    assert (refused.resource, refused.device) == ("example.com/fuse", "misc-fuse.1")

    (made_up.root / "dev/thing1").write_text("c 10:200\n")
    await node.until(lambda: node.allocatable().get("example.com/path") == 1, 30)
    assert sum(counted.hotplug["device-plugin"].counts) >= 1
    assert counted.hotplug["device-plugin"].sum < 30
    assert ("send devices to the kubelet", "example.com/path") in spans.finished

    daemon.path.write_text("resources: 1")
    assert (await daemon.run("reload")).exit_code == 2
    daemon.write(FUSE)
    assert (await daemon.run("reload")).exit_code == 0
    assert counted.reloads == {"good": 1, "refused": 1}


async def test_unplugged_event_names_the_pod_of_the_device(
    daemon: DaemonUnderTest, node: Node, made_up: MadeUpHost
) -> None:
    ledger = await opened(daemon.state)
    await ledger.grant([lease("misc-fuse", "example.com/fuse", holder="pod/default/a/c", pods="u1")])
    await ledger.close()
    await daemon.start({**FUSE, "shares": 1})
    made_up.remove_node("fuse")
    await until(lambda: "unplugged" in kinds(daemon))
    found = next(x for x in daemon.telemetry.events.since(0) if x.kind == "unplugged")
    assert (found.message, found.device) == ("is gone; it is with pod default/a, container c", "misc-fuse")
    assert "plugged" not in kinds(daemon)
    made_up.renumber("fuse", 0)
    await until(lambda: "plugged" in kinds(daemon))


async def test_kubelet_restart_is_recorded(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE)
    await until(lambda: kinds(daemon) == ["registered"])
    await node.restart()
    await until(lambda: sorted(kinds(daemon)) == ["kubelet-restarted", "registered", "registered"])
