"""The kubelet's metrics of plugins and drivers, with the names that a kubelet's /metrics has.

| metric | type | labels | meaning |
|---|---|---|---|
| kubelet_device_plugin_registration_total | counter | resource_name | calls of Register, refused ones too |
| kubelet_device_plugin_alloc_duration_seconds | histogram | resource_name | calls of Allocate, failed ones too |
| dra_operations_duration_seconds | histogram | operation_name, is_error | prepare or unprepare of a pod's claims |
| dra_grpc_operations_duration_seconds | histogram | driver_name, method_name, grpc_status_code | calls to drivers |
| dra_resource_claims_in_use | gauge | driver_name | prepared claims; all of them as `<any>` |

As in a kubelet, label values that never occurred are not listed, and every kubelet starts from zero.
Source: the kubelet's `metrics/metrics.go`, 1.34 to 1.37.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

from grpcunix import RpcError, Status
from kubelet.clock import Clock
from kubelet.errors import go_code
from telemetry.exposition import Metric
from telemetry.histogram import Histogram

Operation: TypeAlias = Literal["PrepareResources", "UnprepareResources"]

DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bucket bounds in seconds; the defaults of Prometheus' Go library."""
_GROWTH = (40 / 0.1) ** (1 / 14)
DRA_BOUNDS = tuple(0.1 * _GROWTH**i for i in range(15))
"""Bucket bounds in seconds: 15 exponential steps from 0.1 to 40."""


class KubeletMetrics:
    """The metrics of one kubelet. They belong to its event loop."""

    def __init__(self, clock: Clock) -> None:
        """Start from zero; `clock` measures durations."""
        self.registrations: Counter[str] = Counter()
        self._clock = clock
        self._allocations: defaultdict[str, Histogram] = defaultdict(partial(Histogram, DEFAULT_BOUNDS))
        self._operations: defaultdict[tuple[str, str], Histogram] = defaultdict(partial(Histogram, DRA_BOUNDS))
        self._calls: defaultdict[tuple[str, str, str], Histogram] = defaultdict(partial(Histogram, DRA_BOUNDS))

    @contextmanager
    def measure_allocation(self, resource: str) -> Iterator[None]:
        """Measure a call of Allocate."""
        began = self._clock.now()
        try:
            yield
        finally:
            self._allocations[resource].observe(self._clock.now() - began)

    @contextmanager
    def measure_operation(self, operation: Operation) -> Iterator[None]:
        """Measure an operation on all claims of a pod."""
        began, is_error = self._clock.now(), "true"
        try:
            yield
            is_error = "false"
        finally:
            self._operations[operation, is_error].observe(self._clock.now() - began)

    async def measure_call(self, driver: str, method: str, call: Awaitable[Any]) -> Any:
        """Measure a unary call to a driver, `/<service>/<method>`, and return its response. Raises `RpcError`."""
        began, code = self._clock.now(), Status.CANCELLED
        try:
            response = await call
            code = Status.OK
        except RpcError as error:
            code = error.code
            raise
        finally:
            self._calls[driver, method, go_code(code)].observe(self._clock.now() - began)
        return response

    def collect(self, claims_in_use: Mapping[str, int]) -> Iterator[Metric]:
        """Yield the current metrics; `claims_in_use` by driver."""
        if self.registrations:
            yield Metric(
                "kubelet_device_plugin_registration_total",
                "counter",
                "Cumulative number of device plugin registrations. Broken down by resource name.",
                tuple(({"resource_name": resource}, count) for resource, count in self.registrations.items()),
            )
        if self._allocations:
            yield Metric(
                "kubelet_device_plugin_alloc_duration_seconds",
                "histogram",
                "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
                tuple(({"resource_name": resource}, found) for resource, found in self._allocations.items()),
            )
        if self._operations:
            yield Metric(
                "dra_operations_duration_seconds",
                "histogram",
                "Duration in seconds of preparing or unpreparing all claims of a pod.",
                tuple(
                    ({"operation_name": operation, "is_error": is_error}, found)
                    for (operation, is_error), found in self._operations.items()
                ),
            )
        if self._calls:
            yield Metric(
                "dra_grpc_operations_duration_seconds",
                "histogram",
                "Duration in seconds of the DRA gRPC operations",
                tuple(
                    ({"driver_name": driver, "method_name": method, "grpc_status_code": code}, found)
                    for (driver, method, code), found in self._calls.items()
                ),
            )
        yield Metric(
            "dra_resource_claims_in_use",
            "gauge",
            "The number of ResourceClaims that are currently in use on the node, by driver, and of all as <any>.",
            tuple(({"driver_name": driver}, count) for driver, count in claims_in_use.items()),
        )
