"""Metrics for Prometheus: what `DevicePlugins.status` says, read when somebody asks.

| metric | type | labels | meaning |
|---|---|---|---|
| nodeplug_devices | gauge | resource, health | what the kubelet was told: `healthy` and `unhealthy` |
| nodeplug_leases | gauge | resource | units that containers hold |
| nodeplug_registrations_total | counter | resource | times that the kubelet accepted the resource |
| nodeplug_kubelet_listens | gauge | resource | 1 while the kubelet has ListAndWatch open |
"""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from deviceplugin import ResourceStatus

Status = Callable[[], Sequence[ResourceStatus]]


class Metrics:
    """Serves metrics over HTTP from `start` to `stop`.

    The server's thread calls `status`, which only reads values that are replaced and never changed.
    """

    def __init__(self, status: Status) -> None:
        """Prepare to show what `status` returns."""
        self._status = status
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def start(self, host: str, port: int) -> int:
        """Listen and return the port, which the system chooses for port 0. Raises OSError."""
        self._server, self._thread = start_http_server(port, host, self._registry)
        return int(self._server.server_port)

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this moment."""
        devices = GaugeMetricFamily("nodeplug_devices", "What the kubelet was told.", labels=["resource", "health"])
        leases = GaugeMetricFamily("nodeplug_leases", "Units that containers hold.", labels=["resource"])
        registrations = CounterMetricFamily(
            "nodeplug_registrations", "Times that the kubelet accepted the resource.", labels=["resource"]
        )
        listens = GaugeMetricFamily(
            "nodeplug_kubelet_listens", "1 while the kubelet has ListAndWatch open.", labels=["resource"]
        )
        for status in self._status():
            devices.add_metric([status.name, "healthy"], status.healthy)
            devices.add_metric([status.name, "unhealthy"], status.devices - status.healthy)
            leases.add_metric([status.name], status.leased)
            registrations.add_metric([status.name], status.registrations)
            listens.add_metric([status.name], int(status.streaming))
        yield from (devices, leases, registrations, listens)
