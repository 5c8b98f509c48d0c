"""Scheduling a pod with an API server: read everything, decide, write.

The claims' status is written first, so that no pod runs with devices that are not recorded; then the binding. After a
failure, the writes so far are reverted. Every write carries the version that was read, so a claim that another client
changes in between is a conflict. If other claims were allocated in between, perhaps the same devices, that is detected
before the pod is bound: of two schedulers at least one reverts its writes.
"""

from collections.abc import Callable
from typing import Any, Protocol

from controlplane.k8srm.errors import K8srmError
from controlplane.k8srm.load import ClusterObjects, ObjectName, cluster_of, key_of
from controlplane.k8srm.plan import Plan, plan
from controlplane.k8srm.types import API_VERSION, KINDS, DeviceClaim, DevicePrivilegedClaim, write

Plain = dict[str, Any]


class Api(Protocol):
    """What `schedule` needs of an API server, with JSON values. Refusals are raised as K8srmError."""

    def list(self, api_version: str, kind: str) -> list[Plain]:
        """Return all objects of a kind, in all namespaces."""

    def get(self, name: ObjectName) -> Plain | None:
        """Return one object; None if it or its kind does not exist."""

    def create(self, value: Plain) -> Plain:
        """Create an object; return it as stored."""

    def update_status(self, value: Plain) -> Plain:
        """Write an object's status, if the stored version is still that of the value. Return the object."""

    def delete(self, name: ObjectName) -> None:
        """Delete an object."""

    def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind a pod to a node."""


def schedule(api: Api, pod: str, namespace: str = "default", *, verbose: bool = False, timeout: float = 10.0) -> Plan:
    """Find a node for a pod, and write the result. If the plan has no node, nothing was written.

    `timeout` is in seconds for each node. Raises K8srmError.
    """
    found = api.get(ObjectName("v1", "Pod", namespace, pod))
    if found is None:
        raise K8srmError(f"pod {namespace}/{pod} not found")
    values = [value for kind in KINDS for value in _list_objects(api, API_VERSION, kind)]
    cluster = cluster_of([*values, *_list_objects(api, "v1", "Node"), found])
    planned = plan(cluster.pods[f"{namespace}/{pod}"], cluster, api.get, verbose=verbose, timeout=timeout)
    if planned.outcome.node is not None:
        _write(api, planned, cluster, ObjectName("v1", "Pod", namespace, pod), planned.outcome.node)
    return planned


def _list_objects(api: Api, api_version: str, kind: str) -> list[Plain]:
    return [{**value, "apiVersion": api_version, "kind": kind} for value in api.list(api_version, kind)]


def _write(api: Api, planned: Plan, read: ClusterObjects, pod: ObjectName, node: str) -> None:
    undo: list[Callable[[], None]] = []
    try:
        for each in planned.claims:
            _write_claim(api, each.claim, each.is_new, undo)
        _check_no_concurrent_allocation(api, read, {_identity(each.claim) for each in planned.claims})
        _bind(api, pod, node)
    except K8srmError as error:
        for step in reversed(undo):
            try:
                step()
            except K8srmError as another:
                raise K8srmError(f"{error}; and taking back what was written failed: {another}") from error
        raise


def _write_claim(api: Api, claim: DeviceClaim, is_new: bool, undo: list[Callable[[], None]]) -> None:
    value = write(claim)
    name = ObjectName(claim.API_VERSION, claim.KIND, claim.metadata.namespace, claim.metadata.name)
    if is_new:
        created = api.create({key: member for key, member in value.items() if key != "status"})
        undo.append(lambda: api.delete(name))
        value["metadata"] = created["metadata"]
    else:
        before = api.get(name) or value
        undo.append(lambda: _restore(api, name, value["status"], before.get("status")))
    api.update_status(value)


def _restore(api: Api, name: ObjectName, ours: Plain, before: Plain | None) -> None:
    """Revert a status if it was stored at all: the answer can be lost, or another client can have changed it."""
    current = api.get(name)
    if current is not None and current.get("status") == ours:
        api.update_status({**current, "status": before or {}})


def _bind(api: Api, pod: ObjectName, node: str) -> None:
    """Bind the pod. A failure counts only if the pod is not on the node afterwards, because an answer can be lost."""
    try:
        api.bind(pod.namespace, pod.name, node)
    except K8srmError:
        found = api.get(pod)
        if found is None or found["spec"].get("nodeName") != node:
            raise


def _check_no_concurrent_allocation(api: Api, read: ClusterObjects, ours: set[tuple[str, str]]) -> None:
    """Check that no other claim was allocated since everything was read. Raises K8srmError."""
    before = {_identity(claim): claim.status.allocations for claim in read.all_claims}
    kinds = (DeviceClaim.KIND, DevicePrivilegedClaim.KIND)
    now = cluster_of(value for kind in kinds for value in _list_objects(api, API_VERSION, kind))
    for claim in now.all_claims:
        name = _identity(claim)
        if name not in ours and claim.status.allocations and claim.status.allocations != before.get(name):
            raise K8srmError(f"{claim.KIND} {key_of(claim)} was allocated at the same time; try again")


def _identity(claim: DeviceClaim) -> tuple[str, str]:
    return claim.KIND, key_of(claim)
