"""Traces of what takes time: the interface between packages with spans and the exporter (`nodeplug/tracing.py`).

    a call, a reload, a new device -> `Tracer.span` -> `child_span` for each step that takes time

Without a tracer there is one span that stores nothing. Names and meaning are OpenTelemetry's. The current span follows
the task, and the threads that the task waits for.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

SpanKind: TypeAlias = Literal["internal", "server", "client"]
Attribute: TypeAlias = str | bool | int | float | Sequence[str]

RESOURCE: Final = "nodeplug.resource"
DEVICES: Final = "nodeplug.devices"
"""The requested or allocated devices: unit ids of the device plugin API, devices of a pool in DRA."""
CLAIMS: Final = "nodeplug.claims"
"""Namespaces and names."""
CLAIM_UIDS: Final = "nodeplug.claim_uids"
PODS: Final = "nodeplug.pods"
"""The pods for which claims are reserved; the device plugin API does not name pods."""


class Span:
    """An operation with a duration, from `with` to its end. This one is not recorded."""

    is_recorded: bool = False
    """Whether it is recorded; if not, expensive attributes can be left out."""

    def set(self, name: str, value: Attribute) -> None:
        """Set an attribute."""

    def fail(self, why: str) -> None:
        """Record a failure."""

    def child(self, name: str) -> "Span":
        """Return a child span."""
        del name
        return self

    def finish(self) -> None:
        """End the span now; `with` does that, too."""

    def __enter__(self) -> Self:
        """Start: this becomes the current span."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End; an exception is recorded as the failure."""


NO_SPAN: Final = Span()
_CURRENT: ContextVar[Span] = ContextVar("span", default=NO_SPAN)


class CurrentSpan(Span):
    """A span that is the current one while it lasts."""

    is_recorded = True
    _token: Token[Span] | None = None

    def __enter__(self) -> Self:
        """Start: this becomes the current span."""
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End; an exception is recorded as the failure."""
        if self._token is not None:
            _CURRENT.reset(self._token)
        if error is not None:
            self.fail(str(error) or type(error).__name__)
        self.finish()


def current() -> Span:
    """Return the current span of this task or thread."""
    return _CURRENT.get()


def child_span(name: str) -> Span:
    """Return a child of the current span; without one, a span that is not recorded."""
    return _CURRENT.get().child(name)


class Tracer:
    """Makes spans. This one makes none."""

    def span(
        self, name: str, *, kind: SpanKind = "internal", parent: Mapping[str, str] | None = None, ago: float = 0.0
    ) -> Span:
        """Return a new span that is no child of the current one, and that began `ago` seconds ago.

        `parent` identifies a caller's span, by the fields `traceparent` and `tracestate` of W3C's Trace Context.
        """
        del name, kind, parent, ago
        return NO_SPAN

    def call(self, service: str, method: str, parent: Mapping[str, str]) -> Span:
        """Return the span of an incoming gRPC call, with OpenTelemetry's names."""
        span = self.span(f"{service}/{method}", kind="server", parent=parent)
        if span.is_recorded:
            span.set("rpc.system", "grpc")
            span.set("rpc.service", service)
            span.set("rpc.method", method)
        return span


NO_TRACER: Final = Tracer()
