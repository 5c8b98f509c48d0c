"""Metrics for Prometheus: what the watcher of the host and the two fronts say, as text when somebody asks.

| metric | type | labels | meaning |
|---|---|---|---|
| nodeplug_build_info | gauge | version, python | 1 |
| nodeplug_config_last_reload_successful | gauge | | 0 while the file is wrong and its last good state counts |
| nodeplug_config_last_reload_success_timestamp_seconds | gauge | | when the file was last read and good |
| nodeplug_scan_seconds | gauge | | what the last scan of the host took |
| nodeplug_stuck_reads | gauge | | reads of /sys that have not come back |
| nodeplug_devices | gauge | resource, health | what the kubelet was told: `healthy` and `unhealthy` |
| nodeplug_leases | gauge | resource | units that containers hold |
| nodeplug_registrations_total | counter | resource | times that the kubelet accepted the resource |
| nodeplug_kubelet_listens | gauge | resource | 1 while the kubelet has ListAndWatch open |
| nodeplug_dra_devices | gauge | health | devices in ResourceSlices, `healthy` and `unhealthy` |
| nodeplug_dra_claims | gauge | | claims that are prepared |
| nodeplug_dra_registered | gauge | | 1 when the kubelet has accepted the driver |
| nodeplug_dra_slice_writes_total | counter | | ResourceSlices created, updated and deleted |

The format is Prometheus' text format 0.0.4, written here: its library would take 5 MiB for these few lines.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from deviceplugin import ResourceStatus
from nodeplug.config_file import ConfigStatus
from nodeplug.version import VERSION

if TYPE_CHECKING:
    from dra_plugin import DraStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(Struct, frozen=True):
    """A metric with its samples: values by labels. Names and labels are ours; what labels hold can be anything."""

    name: str
    type: Literal["gauge", "counter"]
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


class ScanStatus(Struct, frozen=True):
    """How the watcher of the host stands: what the last scan took, in seconds, and the reads that hang."""

    seconds: float
    stuck_reads: int


def collect(
    resources: Sequence[ResourceStatus],
    dra: "DraStatus | None" = None,
    scan: ScanStatus | None = None,
    file: ConfigStatus | None = None,
) -> Iterator[Metric]:
    """Yield the metrics of this moment; `dra` where there is a DRA side, `scan` once the host is watched."""
    yield _gauge("nodeplug_build_info", "Which nodeplug this is.", ({"version": VERSION, "python": _PYTHON}, 1))
    if file is not None:
        yield _gauge(
            "nodeplug_config_last_reload_successful",
            "0 while the configuration's file is wrong and the last good one counts.",
            ({}, file.is_good),
        )
        yield _gauge(
            "nodeplug_config_last_reload_success_timestamp_seconds",
            "When the configuration's file was last read and good.",
            ({}, file.loaded_at),
        )
    if scan is not None:
        yield _gauge("nodeplug_scan_seconds", "What the last scan of the host took.", ({}, scan.seconds))
        yield _gauge("nodeplug_stuck_reads", "Reads of /sys that have not come back.", ({}, scan.stuck_reads))
    yield _gauge(
        "nodeplug_devices",
        "What the kubelet was told.",
        *(({"resource": x.name, "health": "healthy"}, x.healthy) for x in resources),
        *(({"resource": x.name, "health": "unhealthy"}, x.devices - x.healthy) for x in resources),
    )
    yield _gauge(
        "nodeplug_leases", "Units that containers hold.", *(({"resource": x.name}, x.leased) for x in resources)
    )
    yield Metric(
        "nodeplug_registrations_total",
        "counter",
        "Times that the kubelet accepted the resource.",
        tuple(({"resource": x.name}, x.registrations) for x in resources),
    )
    yield _gauge(
        "nodeplug_kubelet_listens",
        "1 while the kubelet has ListAndWatch open.",
        *(({"resource": x.name}, x.streaming) for x in resources),
    )
    if dra is None:
        return
    yield _gauge(
        "nodeplug_dra_devices",
        "Devices in ResourceSlices.",
        ({"health": "healthy"}, dra.healthy),
        ({"health": "unhealthy"}, dra.devices - dra.healthy),
    )
    yield _gauge("nodeplug_dra_claims", "Claims that are prepared.", ({}, dra.claims))
    yield _gauge("nodeplug_dra_registered", "1 when the kubelet has accepted the driver.", ({}, dra.registered))
    yield Metric(
        "nodeplug_dra_slice_writes_total",
        "counter",
        "ResourceSlices created, updated and deleted.",
        (({}, dra.slice_writes),),
    )


def render(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.type}")
        for labels, value in metric.samples:
            shown = ",".join(f'{name}="{_escaped(text, quoted=True)}"' for name, text in sorted(labels.items()))
            lines.append(f"{metric.name}{{{shown}}} {float(value)}" if shown else f"{metric.name} {float(value)}")
    return "".join(f"{line}\n" for line in lines)


_PYTHON = platform.python_version()


def _gauge(name: str, text: str, *samples: tuple[Mapping[str, str], float]) -> Metric:
    return Metric(name, "gauge", text, samples)


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text
