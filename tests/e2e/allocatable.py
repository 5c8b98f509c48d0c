"""The kubelet's allocatable devices of a resource, polled every 20 ms, because the node status is seconds late."""

import threading
import time
from collections.abc import Sequence

from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.e2e.realnode import RealNode

PERIOD = 0.02  # seconds


class Allocatable:
    """The count, polled while the object is entered."""

    def __init__(self, node: RealNode, resource: str) -> None:
        self._node, self._resource = node, resource
        self._thread = threading.Thread(target=self._watch)
        self._ends = threading.Event()
        self._seen: list[tuple[float, int]] = []  # times and counts; the last entry is extended

    def __enter__(self) -> "Allocatable":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def gaps(self, full: int, since: float = 0.0) -> Sequence[float]:
        """Return the duration in seconds of each period with fewer than `full` devices."""
        gaps: list[float] = []
        began: float | None = None
        for when, count in [*self._seen]:
            if when < since:
                continue
            if count < full and began is None:
                began = when
            elif count >= full and began is not None:
                gaps.append(when - began)
                began = None
        return gaps

    def until(self, count: int, seconds: float = 30.0, steady: float = 0.0) -> float:
        """Wait for a count that lasts `steady` seconds; return the time until it was reached."""
        start = time.monotonic()
        while True:
            now = time.monotonic()
            recent = [seen for when, seen in self._seen[-1 - int(steady / PERIOD) :] if when >= start]
            if recent and set(recent) == {count} and now - start >= steady:
                return now - start
            assert now - start < seconds, f"stuck: {recent[-1:]} of {self._resource} for {seconds:.0f} s, not {count}"
            time.sleep(PERIOD)

    def _watch(self) -> None:
        with self._node.pod_resources("GetAllocatableResources") as ask:
            while not self._ends.wait(PERIOD):
                found = ask(podresources.AllocatableResourcesRequest())
                count = sum(len(x.device_ids) for x in found.devices if x.resource_name == self._resource)
                self._seen.append((time.monotonic(), count))
