"""Metrics for Prometheus: what `DevicePlugins.status` and `DraPlugin.status` say, read when somebody asks.

| metric | type | labels | meaning |
|---|---|---|---|
| nodeplug_devices | gauge | resource, health | what the kubelet was told: `healthy` and `unhealthy` |
| nodeplug_leases | gauge | resource | units that containers hold |
| nodeplug_registrations_total | counter | resource | times that the kubelet accepted the resource |
| nodeplug_kubelet_listens | gauge | resource | 1 while the kubelet has ListAndWatch open |
| nodeplug_dra_devices | gauge | health | devices in ResourceSlices, `healthy` and `unhealthy` |
| nodeplug_dra_claims | gauge | | claims that are prepared |
| nodeplug_dra_registered | gauge | | 1 when the kubelet has accepted the driver |
| nodeplug_dra_slice_writes_total | counter | | ResourceSlices created, updated and deleted |
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from deviceplugin import ResourceStatus

if TYPE_CHECKING:
    from dra_plugin import DraStatus

Status = Callable[[], Sequence[ResourceStatus]]


class Metrics:
    """Serves metrics over HTTP from `start` to `stop`.

    The server's thread calls `status` and `dra`, which only read values that are replaced and never changed.
    """

    def __init__(self, status: Status, dra: "Callable[[], DraStatus] | None" = None) -> None:
        """Prepare to show what `status` says of the device plugin API, and `dra` of DRA."""
        self._status = status
        self._dra = dra
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
        if self._dra is not None:
            yield from _dra_metrics(self._dra())


def _dra_metrics(status: "DraStatus") -> Iterator[Metric]:
    devices = GaugeMetricFamily("nodeplug_dra_devices", "Devices in ResourceSlices.", labels=["health"])
    devices.add_metric(["healthy"], status.healthy)
    devices.add_metric(["unhealthy"], status.devices - status.healthy)
    yield devices
    yield GaugeMetricFamily("nodeplug_dra_claims", "Claims that are prepared.", value=status.claims)
    yield GaugeMetricFamily(
        "nodeplug_dra_registered", "1 when the kubelet has accepted the driver.", value=int(status.registered)
    )
    yield CounterMetricFamily(
        "nodeplug_dra_slice_writes", "ResourceSlices created, updated and deleted.", value=status.slice_writes
    )
