"""Binding a pod to a node, and evicting it."""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.options import DeleteOptions, WriteOptions
from controlplane.apiserver.preconditions import check_uid
from controlplane.apiserver.rest import Rest
from controlplane.apiserver.status import bad_request, conflict
from controlplane.apiserver.target import Target
from resourceapi.objects import format_time

_SCHEDULED = "PodScheduled"
_DISRUPTED = "DisruptionTarget"


def bind(rest: Rest, target: Target, binding: Plain, options: WriteOptions) -> None:
    """Put a pod on the node that a Binding names, and say so in its status.

    Raises ApiError, also for a pod that is on a node, or that is another one than the Binding means by its uid.
    """
    where = binding.get("target") or {}
    node = where.get("name") if isinstance(where, dict) else None
    if not node:
        raise bad_request("a binding needs target.name, the name of a node")
    pod = rest.get(target._replace(subresource=""))
    metadata = binding.get("metadata") or {}
    if isinstance(metadata, dict) and metadata.get("uid"):
        check_uid(target._replace(subresource=""), pod, str(metadata["uid"]), is_dry_run=options.dry_run)
    found = (pod.get("spec") or {}).get("nodeName")
    why = ""
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {target.name} is being deleted, cannot be assigned to a host"
    elif found:
        why = f'pod {target.name} is already assigned to node "{found}"'
    elif (pod.get("spec") or {}).get("schedulingGates"):
        why = f"pod {target.name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("", "pods/binding", target.name, why)
    if options.dry_run:
        return
    bound = {**pod, "spec": {**(pod.get("spec") or {}), "nodeName": node}}
    bound = rest.update(target._replace(subresource=""), bound, WriteOptions(), "binding").object
    _set_condition(rest, target, bound, {"type": _SCHEDULED}, "binding")


def evict(rest: Rest, target: Target, eviction: Plain, options: WriteOptions) -> None:
    """Delete a pod as an Eviction asks for; the pod says why. There are no PodDisruptionBudgets here.

    Raises ApiError, also for another pod than the Eviction means by its uid.
    """
    one = target._replace(subresource="")
    pod = rest.get(one)
    asked = eviction.get("deleteOptions") or {}
    preconditions = (asked.get("preconditions") if isinstance(asked, dict) else None) or {}
    uid = str(preconditions.get("uid") or "") if isinstance(preconditions, dict) else ""
    if uid:
        check_uid(one, pod, uid, is_dry_run=options.dry_run)
    if options.dry_run:
        return
    if not pod["metadata"].get("deletionTimestamp"):
        why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        _set_condition(rest, target, pod, {"type": _DISRUPTED, **why}, "eviction")
    grace = asked.get("gracePeriodSeconds") if isinstance(asked, dict) else None
    rest.delete(one, DeleteOptions(uid=pod["metadata"]["uid"], grace=grace if type(grace) is int else None))


def _set_condition(rest: Rest, target: Target, pod: Plain, condition: Plain, manager: str) -> None:
    """Have a pod's status say from now on that a condition is true."""
    status = pod.get("status") or {}
    others = [each for each in status.get("conditions") or () if each.get("type") != condition["type"]]
    true = {**condition, "status": "True", "lastTransitionTime": format_time(rest.clock())}
    told = {**pod, "status": {**status, "conditions": [*others, true]}}
    rest.update(target._replace(subresource="status"), told, WriteOptions(), manager)
