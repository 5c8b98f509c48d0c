"""What the daemon counts and remembers of itself, for people and for Prometheus: in memory, bounded, on the loop.

the rooms -> Telemetry: histograms, refusals, events -> metrics, `nodeplug events`, Events in the cluster
                        spans                        -> a tracer, if there is one
"""

from telemetry.events import Event, EventKind, EventLog
from telemetry.histogram import Histogram
from telemetry.record import RefusalReason, Telemetry
from telemetry.trace import Span, Tracer

__all__ = ["Event", "EventKind", "EventLog", "Histogram", "RefusalReason", "Span", "Telemetry", "Tracer"]
