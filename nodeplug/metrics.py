"""Metrics for Prometheus, from the watcher of the host and the two plugins, as text for each scrape.

| metric | type | labels | meaning |
|---|---|---|---|
| nodeplug_build_info | gauge | version, python | 1 |
| nodeplug_config_info | gauge | sha256 | 1; the digest of the file in effect |
| nodeplug_config_reloads_total | counter | result | reloads that changed something, and those that were refused |
| nodeplug_config_last_reload_successful | gauge | | 0 while the file has a mistake |
| nodeplug_config_last_reload_success_timestamp_seconds | gauge | | when the file was last read without a mistake |
| nodeplug_scan_seconds | gauge | | the duration of the last scan of the host |
| nodeplug_stuck_reads | gauge | | reads of /sys that have not returned |
| nodeplug_last_scan_successful | gauge | | 0 while the host, or devices that resources select, cannot be read |
| nodeplug_devices | gauge | resource, health | as reported to the kubelet: `healthy`, or why it is unhealthy |
| nodeplug_leases | gauge | resource | units that containers hold |
| nodeplug_lease_info | gauge | resource, api, unit, device, namespace, pod, container, claim, pod_uid | 1 |
| nodeplug_lease_info_omitted | gauge | | leases that are left out because there are too many |
| nodeplug_leases_writable | gauge | | 0 while no lease can be written to the disk |
| nodeplug_last_lease_check_successful | gauge | | 0 while a defect prevents leases of ended pods from ending |
| nodeplug_registrations_total | counter | resource | times that the kubelet accepted the resource |
| nodeplug_kubelet_listens | gauge | resource | 1 while the kubelet has ListAndWatch open |
| nodeplug_dra_devices | gauge | health | devices in ResourceSlices: `healthy`, `unhealthy`, `withheld` |
| nodeplug_dra_claims | gauge | | claims that are prepared |
| nodeplug_dra_registered | gauge | | 1 while the kubelet that has accepted the driver runs |
| nodeplug_dra_registrations_total | counter | | times that the kubelet accepted the driver |
| nodeplug_dra_slice_writes_total | counter | | ResourceSlices created, updated and deleted |
| nodeplug_refusals_total | counter | api, reason | containers and claims that were refused (telemetry/record.py) |
| nodeplug_events_total | counter | kind | events (telemetry/events.py) |
| nodeplug_cluster_events_total | counter | outcome | Events of Kubernetes that were written, limited, or that failed |
| nodeplug_allocate_duration_seconds | histogram | | Allocate |
| nodeplug_dra_prepare_duration_seconds | histogram | | NodePrepareResources |
| nodeplug_dra_unprepare_duration_seconds | histogram | | NodeUnprepareResources |
| nodeplug_lease_commit_duration_seconds | histogram | | transactions of the ledger |
| nodeplug_hotplug_duration_seconds | histogram | api | from the kernel's event to the list, or to the stored slice |

They become text in telemetry/exposition.py.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, get_args

from msgspec import Struct

from checkpoint import Api, Lease
from deviceplugin import ResourceStatus
from hostdevices.printable import printable
from nodeplug.config_file import ConfigStatus
from nodeplug.version import VERSION
from telemetry import EventKind, Histogram, RefusalReason, Telemetry
from telemetry.exposition import Metric

if TYPE_CHECKING:
    from dra_plugin import DraStatus

MAX_LEASES: Final = 1000
"""The most leases that are listed one by one: each is a time series in Prometheus."""
_MAX_NAME_LENGTH = 253  # the most characters of a name in Kubernetes
_PYTHON = platform.python_version()


class ScanStatus(Struct, frozen=True):
    """The state of the watcher of the host: the duration of the last scan, in seconds, and the reads that hang.

    `is_successful` is False if the scan failed, or could not read a kind of devices that a resource selects.
    """

    seconds: float
    stuck_reads: int
    is_successful: bool = True


def collect(
    resources: Sequence[ResourceStatus],
    dra: "DraStatus | None" = None,
    scan: ScanStatus | None = None,
    file: ConfigStatus | None = None,
    telemetry: Telemetry | None = None,
    leases: Sequence[Lease] = (),
    config_sha256: str = "",
    *,
    leases_writable: bool = True,
    leases_checked: bool = True,
) -> Iterator[Metric]:
    """Yield the metrics of this moment; `dra` if there is a DRA side, `scan` once the host is watched.

    `config_sha256` is the digest of the file in force.
    """
    yield _gauge(
        "nodeplug_build_info", "The version of nodeplug and of Python.", ({"version": VERSION, "python": _PYTHON}, 1)
    )
    if config_sha256:
        text = "The digest of the configuration file in effect."
        yield _gauge("nodeplug_config_info", text, ({"sha256": config_sha256}, 1))
    if telemetry is not None and file is not None:
        reloads = telemetry.reloads
        yield _counter(
            "nodeplug_config_reloads_total",
            "Reloads of the file that changed something, and reloads that were refused.",
            ({"result": "good"}, reloads["good"]),
            ({"result": "refused"}, reloads["refused"]),
        )
    if file is not None:
        yield _gauge(
            "nodeplug_config_last_reload_successful",
            "0 while the configuration file has a mistake and the previous one is in effect.",
            ({}, file.is_good),
        )
        yield _gauge(
            "nodeplug_config_last_reload_success_timestamp_seconds",
            "When the configuration file was last read without a mistake.",
            ({}, file.loaded_at),
        )
    if scan is not None:
        yield _gauge("nodeplug_scan_seconds", "Duration of the last scan of the host.", ({}, scan.seconds))
        yield _gauge("nodeplug_stuck_reads", "Reads of /sys that have not returned.", ({}, scan.stuck_reads))
        text = "0 while the host, or a kind of devices that resources select, cannot be read."
        yield _gauge("nodeplug_last_scan_successful", text, ({}, scan.is_successful))
    yield _gauge(
        "nodeplug_devices",
        "Devices as reported to the kubelet.",
        *(({"resource": x.name, "health": "healthy"}, x.healthy) for x in resources),
        *(({"resource": x.name, "health": "unhealthy"}, _unhealthy(x)) for x in resources),
        *(({"resource": x.name, "health": "in-use"}, x.in_use) for x in resources),
        *(({"resource": x.name, "health": "withheld"}, x.withheld) for x in resources),
        *(({"resource": x.name, "health": "unlisted"}, x.unlisted) for x in resources),
    )
    yield _gauge(
        "nodeplug_leases", "Units that containers hold.", *(({"resource": x.name}, x.leased) for x in resources)
    )
    yield from _leases(leases)
    text = "0 while leases cannot be written to disk, so that nothing is allocated."
    yield _gauge("nodeplug_leases_writable", text, ({}, leases_writable))
    text = "0 while a defect prevents the check of leases, so that leases of ended pods are kept."
    yield _gauge("nodeplug_last_lease_check_successful", text, ({}, leases_checked))
    yield _counter(
        "nodeplug_registrations_total",
        "Times that the kubelet accepted the resource.",
        *(({"resource": x.name}, x.registrations) for x in resources),
    )
    yield _gauge(
        "nodeplug_kubelet_listens",
        "1 while the kubelet has ListAndWatch open.",
        *(({"resource": x.name}, x.streaming) for x in resources),
    )
    if dra is not None:
        yield from _dra(dra)
    if telemetry is not None:
        yield from _telemetry_metrics(telemetry, has_dra=dra is not None)


def _unhealthy(resource: ResourceStatus) -> int:
    return resource.devices - resource.healthy - resource.withheld - resource.in_use - resource.unlisted


def _leases(leases: Sequence[Lease]) -> Iterator[Metric]:
    text = "A lease, with its pod and container or its claim, as far as they are known."
    yield _gauge("nodeplug_lease_info", text, *((_lease(x), 1) for x in leases[:MAX_LEASES]))
    text = "Leases without a nodeplug_lease_info, because there are too many."
    yield _gauge("nodeplug_lease_info_omitted", text, ({}, max(0, len(leases) - MAX_LEASES)))


def _lease(lease: Lease) -> dict[str, str]:
    namespace = pod = container = claim = ""
    match lease.holder.split("/"):
        case ["pod", namespace, pod, container]:
            pass
        case ["claim", namespace, claim, _]:
            pass
    labels = {
        "resource": lease.resource,
        "api": lease.api,
        "unit": lease.unit,
        "device": ",".join(sorted(lease.exclusive or lease.shared)),
        "namespace": namespace,
        "pod": pod,
        "container": container,
        "claim": claim,
        "pod_uid": min(lease.pods) if len(lease.pods) == 1 else "",
    }
    return {name: printable(text, _MAX_NAME_LENGTH) for name, text in labels.items()}


def _dra(dra: "DraStatus") -> Iterator[Metric]:
    yield _gauge(
        "nodeplug_dra_devices",
        "Devices in ResourceSlices.",
        ({"health": "healthy"}, dra.healthy),
        ({"health": "unhealthy"}, dra.devices - dra.healthy - dra.withheld),
        ({"health": "withheld"}, dra.withheld),
    )
    yield _gauge("nodeplug_dra_claims", "Claims that are prepared.", ({}, dra.claims))
    yield _gauge("nodeplug_dra_registered", "1 while the kubelet that accepted the driver runs.", ({}, dra.registered))
    yield _counter(
        "nodeplug_dra_registrations_total", "Times that the kubelet accepted the driver.", ({}, dra.registrations)
    )
    yield _counter(
        "nodeplug_dra_slice_writes_total", "ResourceSlices created, updated and deleted.", ({}, dra.slice_writes)
    )


def _telemetry_metrics(telemetry: Telemetry, *, has_dra: bool) -> Iterator[Metric]:
    refusals = telemetry.refusals
    apis: tuple[Api, ...] = ("device-plugin", "dra") if has_dra else ("device-plugin",)
    yield _counter(
        "nodeplug_refusals_total",
        "Containers and claims that were refused.",
        *(({"api": api, "reason": why}, refusals[api, why]) for api in apis for why in get_args(RefusalReason)),
    )
    kinds: tuple[EventKind, ...] = get_args(EventKind)
    counts = telemetry.events.counts
    yield _counter("nodeplug_events_total", "Events.", *(({"kind": kind}, counts[kind]) for kind in kinds))
    written = telemetry.cluster_events
    yield _counter(
        "nodeplug_cluster_events_total",
        "Kubernetes Events: written, dropped by the rate limit, and refused by the API server.",
        ({"outcome": "written"}, written["written"]),
        ({"outcome": "limited"}, written["limited"]),
        ({"outcome": "failed"}, written["failed"]),
    )
    yield _histogram("nodeplug_allocate_duration_seconds", "Duration of Allocate.", ({}, telemetry.allocate))
    if has_dra:
        yield _histogram(
            "nodeplug_dra_prepare_duration_seconds", "Duration of NodePrepareResources.", ({}, telemetry.prepare)
        )
        yield _histogram(
            "nodeplug_dra_unprepare_duration_seconds", "Duration of NodeUnprepareResources.", ({}, telemetry.unprepare)
        )
    yield _histogram(
        "nodeplug_lease_commit_duration_seconds", "Duration of writing leases to disk.", ({}, telemetry.commit)
    )
    yield _histogram(
        "nodeplug_hotplug_duration_seconds",
        "Duration from the kernel's event to the list for the kubelet, or to the stored ResourceSlice.",
        *(({"api": api}, telemetry.hotplug[api]) for api in apis),
    )


def _gauge(name: str, text: str, *samples: tuple[Mapping[str, str], float]) -> Metric:
    return Metric(name, "gauge", text, samples)


def _counter(name: str, text: str, *samples: tuple[Mapping[str, str], float]) -> Metric:
    return Metric(name, "counter", text, samples)


def _histogram(name: str, text: str, *samples: tuple[Mapping[str, str], Histogram]) -> Metric:
    return Metric(name, "histogram", text, samples)
