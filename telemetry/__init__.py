"""Counters, events and spans of the daemon: in memory, bounded, on the event loop.

the packages -> Telemetry: histograms, refusals, events -> metrics, `nodeplug events`, Events in the cluster
                        spans                        -> a tracer, if there is one
"""

from telemetry.events import Event, EventKind, EventLog
from telemetry.histogram import Histogram
from telemetry.record import RefusalReason, Telemetry
from telemetry.trace import Span, Tracer

__all__ = ["Event", "EventKind", "EventLog", "Histogram", "RefusalReason", "Span", "Telemetry", "Tracer"]
