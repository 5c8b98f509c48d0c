"""All writes to the server, and how each handles a refusal or a missing answer.

A refusal because the cached object is old raises `Outdated`; the newer object is on its way and starts another pass. A
status without an answer might have been stored. It is sent again, until the server accepts or refuses it, before
anything else is decided.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from controlplane.scheduler.cluster_cache import ClusterCache
from controlplane.scheduler.pods import condition
from resourceapi.client import ClientError, Refused, Unreachable
from resourceapi.client.blocking import Client
from resourceapi.objects import format_time
from resourceapi.objects.core import Pod
from resourceapi.objects.events import pod_event
from resourceapi.objects.v1 import (
    FINALIZER,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

_STRATEGIC = "application/strategic-merge-patch+json"


class Outdated(Exception):
    """The object differs from the cached one: it was changed, deleted, or exists already."""


class ClusterWriter:
    """Writes to the API server, and stores the answers in the cache. `now` returns the current time."""

    def __init__(self, client: Client, cluster: ClusterCache, reporter: str, now: Callable[[], datetime]) -> None:
        self._client, self._cluster = client, cluster
        self._pods = client.resource(Pod)
        self._claims = client.any_version(ResourceClaim)
        self._reporter = reporter
        self._now = now
        self._unanswered: list[ResourceClaim] = []
        self.count = 0  # successful writes

    async def resend_unanswered(self) -> None:
        """Send the writes again that got no answer. Raises Unreachable as long as there is none."""
        while self._unanswered:
            with contextlib.suppress(Outdated):
                await self.set_claim_status(self._unanswered.pop(0))

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim; return it as stored. Raises Outdated, ClientError."""
        created = await self._send(lambda: self._claims.create(claim))
        self._cluster.claims.record_write(created)
        return created

    async def protect(self, claim: ResourceClaim) -> ResourceClaim:
        """Add the finalizer that an allocated claim needs. Raises Outdated, ClientError."""
        if FINALIZER in claim.metadata.finalizers:
            return claim
        metadata = replace(claim.metadata, finalizers=(*claim.metadata.finalizers, FINALIZER))
        return await self._update_claim(replace(claim, metadata=metadata))

    async def set_claim_status(self, claim: ResourceClaim) -> ResourceClaim:
        """Write a claim's status. Raises Outdated, ClientError; without an answer, it is sent again later."""
        try:
            changed = await self._send(lambda: self._claims.update_status(claim))
        except (Unreachable, Refused) as error:
            if not isinstance(error, Refused) or error.code >= 500:
                self._unanswered.append(claim)
            raise
        self._cluster.claims.record_write(changed)
        return changed

    async def reserve(
        self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None = None
    ) -> ResourceClaim:
        """Reserve a claim for the pod, and write `allocation` with it if there is one. Raises Outdated, ClientError."""
        user = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        status = replace(
            claim.status,
            allocation=allocation or claim.status.allocation,
            reserved_for=(*claim.status.reserved_for, user),
        )
        return await self.set_claim_status(replace(claim, status=status))

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Deallocate a claim: remove its reservations, allocation and finalizer.

        A claim that is being deleted disappears with that. Raises Outdated, ClientError.
        """
        if claim.status != ResourceClaimStatus():
            claim = await self.set_claim_status(replace(claim, status=ResourceClaimStatus()))
        kept = tuple(each for each in claim.metadata.finalizers if each != FINALIZER)
        if kept == claim.metadata.finalizers:
            return claim
        released = replace(claim, metadata=replace(claim.metadata, finalizers=kept))
        if kept or claim.metadata.deletion_timestamp is None:
            return await self._update_claim(released)
        await self._send(lambda: self._claims.update(released))
        self._cluster.claims.record_deletion(claim)
        return released

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Delete a claim. Raises Outdated, ClientError."""
        metadata = claim.metadata
        await self._send(lambda: self._claims.delete(metadata.name, metadata.namespace, uid=metadata.uid))
        if not metadata.finalizers:
            self._cluster.claims.record_deletion(claim)

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod; the kubelet stops it. Raises Outdated, ClientError."""
        metadata = pod.metadata

        def deleted() -> Pod:
            self._pods.delete(metadata.name, metadata.namespace, uid=metadata.uid)
            return self._pods.get(metadata.name, metadata.namespace)

        try:
            self._cluster.pods.record_write(await self._send(deleted))
        except Outdated:
            self._cluster.pods.record_deletion(pod)  # it had no grace period, or was gone before

    async def set_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> Pod:
        """Patch these members of a pod's status. Raises Outdated, ClientError."""
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        changed = await self._send(
            lambda: self._pods.patch(
                pod.metadata.name, patch, pod.metadata.namespace, content_type=_STRATEGIC, subresource="status"
            )
        )
        self._cluster.pods.record_write(changed)
        return changed

    async def set_pod_condition(self, pod: Pod, type_: str, status: str, reason: str = "", message: str = "") -> bool:
        """Set a condition of a pod. Return whether it changed. Raises Outdated, ClientError."""
        before = condition(pod, type_)
        wanted = {"type": type_, "status": status, "reason": reason, "message": message}
        if all((before.get(name) or "") == value for name, value in wanted.items()):
            return False
        is_status_changed = before.get("status") != status
        at = format_time(self._now()) if is_status_changed else before.get("lastTransitionTime")
        changed = {name: value or None for name, value in wanted.items() if value or name in before}  # null: removed
        await self.set_pod_status(pod, {"conditions": [changed | {"lastTransitionTime": at}]})
        return True

    async def bind(self, pod: Pod, node: str) -> Pod:
        """Bind a pod to a node. Raises Outdated, ClientError."""
        name, namespace = pod.metadata.name, pod.metadata.namespace
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }

        def bound() -> Pod:
            self._client.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)
            return self._pods.get(name, namespace)

        changed = await self._send(bound)
        self._cluster.pods.record_write(changed)
        return changed

    async def record_event(self, about: Pod, reason: str, message: str, *, is_warning: bool = True) -> None:
        """Record an event about a pod. A failure is only logged."""
        metadata = about.metadata
        event = pod_event(
            metadata,
            reason,
            message,
            type_="Warning" if is_warning else "Normal",
            source={"component": self._reporter},
            at=format_time(self._now()),
        )
        try:
            await asyncio.to_thread(self._client.raw("v1", "events", namespaced=True).create, event)
        except ClientError as error:
            log.info("event %s of pod %s/%s: %s", reason, metadata.namespace, metadata.name, error)

    async def pod_exists(self, name: str, namespace: str, uid: str) -> bool:
        """Return whether the server has a pod that the cache lacks. Raises ClientError."""
        try:
            found: Pod = await asyncio.to_thread(self._pods.get, name, namespace)
        except Refused as refusal:
            if refusal.code == 404:
                return False
            raise
        return found.metadata.uid == uid

    async def _update_claim(self, claim: ResourceClaim) -> ResourceClaim:
        changed = await self._send(lambda: self._claims.update(claim))
        self._cluster.claims.record_write(changed)
        return changed

    async def _send(self, work: Callable[[], T]) -> T:
        try:
            answer = await asyncio.to_thread(work)
        except Refused as refusal:
            if refusal.code in (404, 409):
                raise Outdated(str(refusal)) from refusal
            raise
        self.count += 1
        return answer
