"""The kubelet's use of the cluster for DRA: it reads claims and deletes the node's ResourceSlices, nothing else.

The node does not allocate claims and does not report pod statuses: a pod arrives with the claims of the scheduler and
the claim controller in its status.
"""

import asyncio
import uuid
from collections.abc import Iterable
from typing import Protocol

from kubelet.errors import KubeletError
from resourceapi.client import ClientError, Refused
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError, ObjectMeta, v1


class ClusterError(KubeletError):
    """The object does not exist, or the cluster refuses, cannot be reached or sent an invalid answer.

    The text is the API server's, if it sent one.
    """


class Cluster(Protocol):
    """The interface of an API server for the DRA manager."""

    async def get_claim(self, namespace: str, name: str) -> v1.ResourceClaim:
        """Return the current state of a claim. Raises `ClusterError`."""
        ...

    async def delete_slices(self, node: str, driver: str | None = None) -> None:
        """Delete the ResourceSlices of a node (`spec.nodeName`), of one driver or of all. Raises `ClusterError`."""
        ...


class MemoryCluster:
    """A cluster without a server: the caller adds claims, and there are no slices."""

    def __init__(self, claims: Iterable[v1.ResourceClaim] = ()) -> None:
        """Start with these claims."""
        self.deleted_slices: list[tuple[str, str | None]] = []  # (node, driver) of each deletion
        self._claims: dict[tuple[str, str], v1.ResourceClaim] = {}
        for claim in claims:
            self.put(claim)

    def put(self, claim: v1.ResourceClaim) -> None:
        """Add a claim, or replace the one with the same name. The default namespace is `default`."""
        self._claims[claim.metadata.namespace or "default", claim.metadata.name] = claim

    def remove(self, name: str, namespace: str = "default") -> None:
        """Delete a claim if it exists."""
        self._claims.pop((namespace, name), None)

    async def get_claim(self, namespace: str, name: str) -> v1.ResourceClaim:
        """Return a claim that was added. Raises `ClusterError`."""
        try:
            return self._claims[namespace, name]
        except KeyError:
            raise ClusterError(f'resourceclaims.resource.k8s.io "{name}" not found') from None

    async def delete_slices(self, node: str, driver: str | None = None) -> None:
        """Record the call in `deleted_slices`."""
        self.deleted_slices.append((node, driver))


class ApiCluster:
    """An API server. The client blocks, so every request runs in a thread."""

    def __init__(self, client: Client) -> None:
        """The caller must close `client`."""
        self._claims = client.resource(v1.ResourceClaim)
        self._slices = client.resource(v1.ResourceSlice)

    async def get_claim(self, namespace: str, name: str) -> v1.ResourceClaim:
        """Return the current state of a claim. Raises `ClusterError`."""
        try:
            return await asyncio.to_thread(self._claims.get, name, namespace)
        except (ClientError, DecodeError) as error:
            raise ClusterError(_text(error)) from error

    async def delete_slices(self, node: str, driver: str | None = None) -> None:
        """Delete the slices of a node that exist now. Raises `ClusterError`."""
        fields = f"spec.nodeName={node}" + ("" if driver is None else f",spec.driver={driver}")
        try:
            await asyncio.to_thread(self._delete, fields)
        except (ClientError, DecodeError) as error:
            raise ClusterError(_text(error)) from error

    def _delete(self, fields: str) -> None:
        for found in self._slices.list(field_selector=fields).items:
            try:
                self._slices.delete(found.metadata.name, uid=found.metadata.uid)
            except Refused as error:
                if error.code not in (404, 409):  # another client has deleted or replaced it
                    raise


def allocated_claim(
    name: str, driver: str, *devices: str, users: Iterable[str] = (), uid: str = ""
) -> v1.ResourceClaim:
    """Return a claim in `default` as a scheduler leaves it, for a `MemoryCluster`.

    Args:
        name: the claim's name.
        driver: the driver of the devices.
        devices: the allocated devices, each as `request/pool/device`; pools can contain slashes.
        users: the uids of the pods that the claim is reserved for.
        uid: the claim's uid; by default a new one.
    """
    results = []
    for each in devices:
        request, _, place = each.partition("/")
        pool, _, device = place.rpartition("/")
        results.append(v1.DeviceRequestAllocationResult(request=request, driver=driver, pool=pool, device=device))
    allocation = v1.AllocationResult(devices=v1.DeviceAllocationResult(results=tuple(results)))
    reserved_for = tuple(v1.ResourceClaimConsumerReference(resource="pods", name=user, uid=user) for user in users)
    return v1.ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid or str(uuid.uuid4())),
        status=v1.ResourceClaimStatus(allocation=allocation, reserved_for=reserved_for),
    )


def _text(error: ClientError | DecodeError) -> str:
    return error.message if isinstance(error, Refused) else str(error)
