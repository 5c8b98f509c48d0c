"""Metrics in Prometheus' text format 0.0.4; its library would take 5 MiB for these few lines."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from telemetry.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(Struct, frozen=True):
    """A metric with its samples by labels. Names and label names are fixed; label values can be any text."""

    name: str
    type: Literal["gauge", "counter", "histogram"]
    help: str
    samples: tuple[tuple[Mapping[str, str], float | Histogram], ...]


def render(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.type}")
        for labels, value in metric.samples:
            if isinstance(value, Histogram):
                lines.extend(_lines(metric.name, labels, value))
            else:
                lines.append(f"{metric.name}{_labels(labels)} {float(value)}")
    return "".join(f"{line}\n" for line in lines)


def _lines(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    count = 0
    for bound, count in histogram.cumulative():
        le = "+Inf" if bound == float("inf") else str(bound)
        yield f"{name}_bucket{_labels({**labels, 'le': le})} {count}"
    yield f"{name}_sum{_labels(labels)} {histogram.sum}"
    yield f"{name}_count{_labels(labels)} {count}"


def _labels(labels: Mapping[str, str]) -> str:
    text = ",".join(f'{name}="{_escaped(value, quoted=True)}"' for name, value in sorted(labels.items()))
    return f"{{{text}}}" if text else ""


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text
