"""Everything that is counted, in one place; each package gets it and knows no other package."""

from collections import Counter
from typing import Literal, TypeAlias

from telemetry.events import EventLog
from telemetry.histogram import Histogram
from telemetry.trace import NO_TRACER

Api: TypeAlias = Literal["device-plugin", "dra"]
RefusalReason: TypeAlias = Literal["invalid-request", "not-ready", "state-unavailable", "no-answer", "defect"]


class Telemetry:
    """Histograms in seconds, refusals, reloads and events, since the process began. Belongs to the loop.

    Why something was refused: `invalid-request`: it cannot be granted as it is; `not-ready`: a device is unhealthy,
    gone, or somebody else's; `state-unavailable`: the disk, the kubelet or the host does not let us; `no-answer`: the
    API server, or whoever else must be asked, does not say; `defect`: our own.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.allocate = Histogram()  # Allocate, from the decoded request to the answer
        self.prepare = Histogram()  # NodePrepareResources
        self.unprepare = Histogram()  # NodeUnprepareResources
        self.commit = Histogram()  # a transaction of the ledger
        self.hotplug: dict[Api, Histogram] = {"device-plugin": Histogram(), "dra": Histogram()}
        """From the kernel's word to the list that is sent to the kubelet, or to the stored slice."""
        self.refusals: Counter[tuple[Api, RefusalReason]] = Counter()
        self.reloads: Counter[Literal["good", "refused"]] = Counter()
        self.cluster_events: Counter[Literal["written", "limited", "failed"]] = Counter()
        """Events of Kubernetes: that were written, that would have been too many, that nobody took."""
        self.events = EventLog()
        self.tracer = NO_TRACER
        """Makes the spans of calls, registrations, reloads and devices that come."""

    def refused(
        self, api: Api, reason: RefusalReason, message: str, *, resource: str = "", device: str = "", holder: str = ""
    ) -> None:
        """Count a refusal, and remember it."""
        self.refusals[api, reason] += 1
        self.events.record("refused", message, resource=resource, device=device, holder=holder)
