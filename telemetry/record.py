"""Everything that is counted, in one place; each package gets it and knows no other package."""

from collections import Counter
from typing import Literal, TypeAlias

from telemetry.events import EventLog
from telemetry.histogram import Histogram
from telemetry.trace import NO_TRACER

Api: TypeAlias = Literal["device-plugin", "dra"]
RefusalReason: TypeAlias = Literal["invalid-request", "not-ready", "state-unavailable", "no-answer", "defect"]


class Telemetry:
    """Histograms in seconds, refusals, reloads and events, since the start of the process. Belongs to the loop.

    Reasons of refusals: `invalid-request`: the request cannot be granted as it is; `not-ready`: a device is unhealthy,
    gone, or held by another owner; `state-unavailable`: the disk, the kubelet or the host prevents it; `no-answer`: the
    API server or another necessary source does not answer; `defect`: a bug in nodeplug.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.allocate = Histogram()  # Allocate, from the decoded request to the answer
        self.prepare = Histogram()  # NodePrepareResources
        self.unprepare = Histogram()  # NodeUnprepareResources
        self.commit = Histogram()  # a transaction of the ledger
        self.hotplug: dict[Api, Histogram] = {"device-plugin": Histogram(), "dra": Histogram()}
        """From the kernel's event to the list that is sent to the kubelet, or to the stored slice."""
        self.refusals: Counter[tuple[Api, RefusalReason]] = Counter()
        self.reloads: Counter[Literal["good", "refused"]] = Counter()
        self.cluster_events: Counter[Literal["written", "limited", "failed"]] = Counter()
        """Events of Kubernetes: written, dropped by the rate limit, or refused."""
        self.events = EventLog()
        self.tracer = NO_TRACER
        """Makes the spans of calls, registrations, reloads and hot-plugged devices."""

    def record_refusal(
        self, api: Api, reason: RefusalReason, message: str, *, resource: str = "", device: str = "", holder: str = ""
    ) -> None:
        """Count and record a refusal."""
        self.refusals[api, reason] += 1
        self.events.record("refused", message, resource=resource, device=device, holder=holder)
