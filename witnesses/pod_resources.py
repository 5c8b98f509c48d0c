"""The kubelet's pod-resources API as a witness: which containers have which units, and which devices of claims.

An empty list is no evidence until the kubelet knows its pods, which the API does not report. A kubelet that has listed
a pod of the API server knows all of them, because they arrive as one set. Static pods come from files, and earlier;
they are named after their node. Source: device manager specification, section 9; observations, section 3.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from checkpoint.holdings import Listed
from folderwatch import path_exists
from grpcunix import Client, RpcError, Transport, connect
from kubeletapi.podresources.v1 import api_pb2 as podresources
from witnesses.threads import in_thread

TIMEOUT = 5.0  # seconds
MAX_LIST = 16 * 1024 * 1024  # bytes; the limit of the kubelet's own client of this API
_MAX_ON_LOOP = 64 * 1024  # bytes of a list that is converted on the loop, which takes 2 ms
log = logging.getLogger("nodeplug.leases")
_SERVICE = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]


class PodResources:
    """Asks the socket of one node's kubelet."""

    def __init__(
        self,
        socket: Path,
        serves: Callable[[str], bool],
        driver: str = "",
        nodes: Sequence[str] = (),
        transport: Transport = "builtin",
    ) -> None:
        """Ask at `socket` for the resources that `serves` accepts and the claims of `driver`.

        `nodes` are this node's names: without any name no pod counts as the API server's, because it could be a static
        one.
        """
        self._socket = socket
        self._serves = serves
        self._driver = driver
        self._transport: Transport = transport
        self._suffixes = tuple(f"-{node}" for node in nodes if node)
        self._synced_kubelet: object = None  # the kubelet that has listed a pod of the API server
        self.problem = ""
        self._problem_kubelet: object = None  # the kubelet that has the problem

    def is_absent(self) -> bool:
        """Return whether the socket is absent, which means that no kubelet is running; False if that is unknown."""
        try:
            return not path_exists(self._socket)
        except OSError:
            return False

    async def listed(self) -> Listed | None:
        """Return what the kubelet lists; None if it does not answer, with the reason in `problem`."""
        kubelet = self._kubelet()
        if kubelet is None:
            self._report(f"pod-resources socket {self._socket} not found: leases of ended pods do not end")
            return None
        request = podresources.ListPodResourcesRequest()
        try:
            channel = connect(self._socket, max_message=MAX_LIST, transport=self._transport)
            async with asyncio.timeout(TIMEOUT), channel:
                answer: podresources.ListPodResourcesResponse = await Client(channel, _SERVICE).call("List", request)
        except Exception as error:  # whatever the other side sends, this witness only becomes silent
            details = error.details if isinstance(error, RpcError) else str(error) or f"no answer within {TIMEOUT:g} s"
            self._report(f"pod-resources does not answer: {details}")
            return None
        self._report("")
        if self._kubelet() != kubelet:
            kubelet = None  # another kubelet listens now: which of the two answered is unknown
        elif self._suffixes and any(not pod.name.endswith(self._suffixes) for pod in answer.pod_resources):
            self._synced_kubelet = kubelet
        knows_its_pods = kubelet is not None and self._synced_kubelet == kubelet
        listed = partial(listed_in, answer, self._serves, self._driver, knows_its_pods=knows_its_pods, kubelet=kubelet)
        return (await in_thread(listed) if answer.ByteSize() > _MAX_ON_LOOP else None) or listed()

    def _kubelet(self) -> object:
        """Identify the kubelet by its socket, which each start creates again; None if there is no socket."""
        try:
            status = self._socket.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns  # a chmod or a label changes only the ctime

    def _report(self, problem: str) -> None:
        """Log a problem once for each kubelet."""
        kubelet = self._kubelet()
        if problem and (problem, kubelet) != (self.problem, self._problem_kubelet):
            extra = {"is_current": lambda: self.problem == problem and self._kubelet() == kubelet}
            log.warning("%s", problem, extra=extra)
        self.problem, self._problem_kubelet = problem, kubelet


def listed_in(
    answer: podresources.ListPodResourcesResponse,
    serves: Callable[[str], bool],
    driver: str,
    *,
    knows_its_pods: bool,
    kubelet: object = None,
) -> Listed:
    """Return what an answer lists of the resources that `serves` accepts and the claims of `driver` (empty: none)."""
    return Listed(
        units=_units(answer, serves),
        claims=_claims(answer, driver),
        knows_its_pods=knows_its_pods,
        pods=frozenset(f"{pod.namespace}/{pod.name}" for pod in answer.pod_resources),
        kubelet=kubelet,
    )


def _units(answer: podresources.ListPodResourcesResponse, serves: Callable[[str], bool]) -> dict[tuple[str, str], str]:
    return {
        (devices.resource_name, unit): f"pod/{pod.namespace}/{pod.name}/{container.name}"
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
        if serves(devices.resource_name)
        for unit in devices.device_ids
    }


def _claims(answer: podresources.ListPodResourcesResponse, driver: str) -> dict[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for pod in answer.pod_resources if driver else ():
        for container in pod.containers:
            for claim in container.dynamic_resources:
                units = {
                    f"{x.device_name}/{x.share_id}" if x.share_id else x.device_name
                    for x in claim.claim_resources
                    if x.driver_name == driver
                }
                if units:
                    found.setdefault((claim.claim_namespace, claim.claim_name), set()).update(units)
    return {claim: frozenset(units) for claim, units in found.items()}
