"""What the daemon counts and remembers of itself, for people and for Prometheus: in memory, bounded, on the loop.

the rooms -> Telemetry: histograms, refusals, events -> metrics, `nodeplug events`, Events in the cluster
"""

from telemetry.events import Event, EventKind, EventLog
from telemetry.histogram import Histogram
from telemetry.record import RefusalReason, Telemetry

__all__ = ["Event", "EventKind", "EventLog", "Histogram", "RefusalReason", "Telemetry"]
