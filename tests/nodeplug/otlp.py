"""A collector of OpenTelemetry traces over OTLP/HTTP, decoded with the protocol's own messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Encoded


class Span(Struct, frozen=True):
    name: str
    trace: str
    id: str
    parent: str
    kind: str
    attributes: dict[str, object]
    error: str  # "" for none
    seconds: float


class Collector:
    """The received spans, in order of arrival."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.resource: dict[str, object] = {}
        self._came = asyncio.Event()

    async def until(self, found: Callable[["Collector"], object]) -> None:
        async with asyncio.timeout(30):
            while not found(self):
                self._came.clear()
                await self._came.wait()

    async def span(self, name: str, **attributes: object) -> Span:
        """Wait for a span with a name and these attributes, and return the first; write dots as `__`."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}

        def found() -> list[Span]:
            return [x for x in self.spans if x.name == name and wanted.items() <= x.attributes.items()]

        try:
            await self.until(lambda _: found())
        except TimeoutError:
            raise AssertionError(f"no span {name} among {[(x.name, x.attributes) for x in self.spans]}") from None
        return found()[0]

    def parts(self, whole: Span) -> list[str]:
        return [x.name for x in self.spans if (x.trace, x.parent) == (whole.trace, whole.id)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            assert head[0] == "POST /v1/traces HTTP/1.1"
            (length,) = (line.split(":")[1] for line in head if line.lower().startswith("content-length:"))
            self._take(ExportTraceServiceRequest.FromString(await reader.readexactly(int(length))))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    def _take(self, request: ExportTraceServiceRequest) -> None:
        for each in request.resource_spans:
            self.resource = _decoded(each.resource.attributes)
            for scope in each.scope_spans:
                self.spans += map(_span, scope.spans)
        self._came.set()


async def _head(reader: asyncio.StreamReader) -> list[str]:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    except (asyncio.IncompleteReadError, ConnectionError):
        return []


def _span(span: Encoded) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        Encoded.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        _decoded(span.attributes),
        span.status.message,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


def _decoded(attributes: object) -> dict[str, object]:
    def value(encoded: AnyValue) -> object:
        kind = encoded.WhichOneof("value")
        assert kind
        return [value(x) for x in encoded.array_value.values] if kind == "array_value" else getattr(encoded, kind)

    pairs: list[KeyValue] = list(attributes)  # type: ignore[call-overload]
    return {pair.key: value(pair.value) for pair in pairs}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    collected = Collector()
    server = await asyncio.start_server(collected.serve, "127.0.0.1", 0)
    collected.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield collected
    finally:
        server.close()  # as a context manager it would wait for the daemon's connection, since Python 3.12


def environment(url: str) -> dict[str, str]:
    """The environment of a daemon that exports its spans to this URL soon."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "20", "NO_PROXY": "*"}
