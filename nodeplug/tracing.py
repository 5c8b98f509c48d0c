"""Traces for an OpenTelemetry collector: spans of all packages (`telemetry/trace.py`), sent as OTLP over HTTP.

    a package's span -> the queue (2,048, `OTEL_BSP_*`) -> a thread -> POST /v1/traces

Rules:
1. Nothing waits for the collector: a finished span goes into a queue, which drops the oldest one when it is full. A
   stop waits `FLUSH_TIMEOUT` for the queue.
2. A collector that does not answer is one line in the log, and another when it answers again.
3. The environment sets the collector and the sampling, as in OpenTelemetry's specification. Its resource attributes
   (`OTEL_RESOURCE_ATTRIBUTES`) override ours.
4. A span has a bounded number of texts of bounded length, because many of them come from outside.

Imported only if tracing is on: OpenTelemetry takes 11 MiB.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hostdevices.printable import printable
from nodeplug.logs import LASTING
from nodeplug.version import VERSION
from telemetry import Span, Telemetry, Tracer
from telemetry.trace import NO_SPAN, NO_TRACER, Attribute, CurrentSpan, SpanKind

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.trace import Span as OtelSpan

FLUSH_TIMEOUT: Final = 2.0  # seconds
MAX_VALUES: Final = 32  # the most values of an attribute that is a list
MAX_TEXT_LENGTH: Final = 500  # the most characters of a text
_DOMAIN = "opentelemetry"  # the logger of the library, whose lines repeat
log = logging.getLogger("nodeplug")


def start_tracing(
    telemetry: Telemetry, node: str, environment: Mapping[str, str] = os.environ
) -> Callable[[], Awaitable[None]]:
    """Record and send the spans of all packages from now on; return the function that ends that.

    If that is impossible, the log has the reason, and there are no spans: no device depends on them.
    """
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if exporter == "none" or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return _nothing
    if exporter not in ("", "otlp") or protocol not in (None, "", "http/protobuf"):
        log.warning(
            "settings.tracing: no traces are sent: the environment requests %s, and nodeplug supports only otlp over"
            " http/protobuf",
            f"OTEL_TRACES_EXPORTER={exporter}" if exporter not in ("", "otlp") else f"the protocol {protocol}",
            extra=LASTING,
        )
        return _nothing
    try:
        provider = _provider(node, environment)
    except ModuleNotFoundError as error:
        log.warning(
            "settings.tracing: no traces are sent: %s is not installed; pip install nodeplug[tracing]",
            error.name,
            extra=LASTING,
        )
        return _nothing
    except Exception as error:  # any error of OpenTelemetry about its environment
        log.warning("settings.tracing: no traces are sent: %s: %s", type(error).__name__, error, extra=LASTING)
        return _nothing
    telemetry.tracer = _KeepingTracer(provider)

    async def close() -> None:
        telemetry.tracer = NO_TRACER
        await _shut_down(provider)

    return close


async def _nothing() -> None:
    pass


def _provider(node: str, environment: Mapping[str, str]) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    last = _LastMessage()
    library = logging.getLogger(_DOMAIN)
    library.handlers[:] = [last]
    library.propagate = False

    class Exporter(SpanExporter):
        """Sends spans, and logs once that it fails."""

        def __init__(self) -> None:
            self._sender = OTLPSpanExporter()
            self._is_failing = False

        def export(self, spans: "Sequence[ReadableSpan]") -> SpanExportResult:
            result = self._sender.export(spans)
            is_failing = result is not SpanExportResult.SUCCESS
            if is_failing and not self._is_failing:
                log.warning(
                    "traces are not delivered, and dropped: %s",
                    last.message or "the collector does not answer",
                    extra={"is_current": lambda: self._is_failing},
                )
            elif self._is_failing and not is_failing:
                log.info("traces are delivered again")
            self._is_failing = is_failing
            return result

        def shutdown(self) -> None:
            self._sender.shutdown()  # type: ignore[no-untyped-call]

    ours = {"service.name": "nodeplug", "service.version": VERSION, "k8s.node.name": node}
    if uid := environment.get("POD_UID"):
        ours["k8s.pod.uid"] = uid
    theirs = dict(Resource.create().attributes)
    if str(theirs.get("service.name", "")).startswith("unknown_service"):
        del theirs["service.name"]
    # no hook at the end of the process: it would wait for the collector
    provider = TracerProvider(resource=Resource({**ours, **theirs}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    return provider


async def _shut_down(provider: "TracerProvider") -> None:
    """Send the remaining spans, for at most `FLUSH_TIMEOUT`."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # the loop has not waited
            loop.call_soon_threadsafe(done.set)

    try:
        threading.Thread(target=shut_down, daemon=True, name="the last traces").start()
    except RuntimeError as error:  # the process, its cgroup or the node can have no other thread now
        log.warning("the last traces are not sent: %s", error)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_TIMEOUT):
            await done.wait()


class _LastMessage(logging.Handler):
    """Keeps the reason of the last failure."""

    message = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.message = printable(record.getMessage(), MAX_TEXT_LENGTH)


class _KeepingTracer(Tracer):
    """Makes spans that are recorded if they are sampled."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("nodeplug", VERSION)
        self._read = TraceContextTextMapPropagator().extract

    def span(
        self, name: str, *, kind: SpanKind = "internal", parent: Mapping[str, str] | None = None, ago: float = 0.0
    ) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind as Kind

        began = time.time_ns() - int(ago * 1e9)
        context = self._read(dict(parent or {}), Context())
        return self._kept(self._tracer.start_span(name, context, Kind[kind.upper()], start_time=began))

    def part_of(self, whole: "OtelSpan", name: str) -> Span:
        """Return a child of a span."""
        from opentelemetry.trace import set_span_in_context

        return self._kept(self._tracer.start_span(name, set_span_in_context(whole)))

    def _kept(self, span: "OtelSpan") -> Span:
        return _OtelSpan(self, span) if span.is_recording() else NO_SPAN


class _OtelSpan(CurrentSpan):
    """A span of OpenTelemetry."""

    def __init__(self, tracer: _KeepingTracer, span: "OtelSpan") -> None:
        self._tracer = tracer
        self._span = span

    def set(self, name: str, value: Attribute) -> None:
        if isinstance(value, str):
            self._span.set_attribute(name, printable(value, MAX_TEXT_LENGTH))
        elif isinstance(value, (bool, int, float)):
            self._span.set_attribute(name, value)
        else:
            self._span.set_attribute(name, [printable(each, MAX_TEXT_LENGTH) for each in value[:MAX_VALUES]])
            if len(value) > MAX_VALUES:
                self._span.set_attribute(f"{name}.count", len(value))

    def fail(self, why: str) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR, printable(why, MAX_TEXT_LENGTH))

    def child(self, name: str) -> Span:
        return self._tracer.part_of(self._span, name)

    def finish(self) -> None:
        self._span.end()
