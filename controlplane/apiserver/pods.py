"""What is not an object of its own: binding a pod to a node, and the question what one may do."""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.options import WriteOptions
from controlplane.apiserver.rest import Rest, Target
from controlplane.apiserver.status import bad_request, conflict
from resourceapi.objects import format_time

_SCHEDULED = "PodScheduled"


def bind(rest: Rest, target: Target, binding: Plain) -> None:
    """Put a pod on the node that a Binding names, and say so in its status; raises ApiError if it is on another one."""
    where = binding.get("target") or {}
    node = where.get("name") if isinstance(where, dict) else None
    if not node:
        raise bad_request("a binding needs target.name, the name of a node")
    pod = rest.get(target._replace(subresource=""))
    found = (pod.get("spec") or {}).get("nodeName")
    if found:
        why = f'pod {target.name} is already assigned to node "{found}"'
        raise conflict("", "pods/binding", target.name, why)
    bound = {**pod, "spec": {**(pod.get("spec") or {}), "nodeName": node}}
    bound = rest.update(target._replace(subresource=""), bound, WriteOptions(), "binding").object
    status = bound.get("status") or {}
    others = [each for each in status.get("conditions") or () if each.get("type") != _SCHEDULED]
    scheduled = {"type": _SCHEDULED, "status": "True", "lastTransitionTime": format_time(rest.clock())}
    told = {**bound, "status": {**status, "conditions": [*others, scheduled]}}
    rest.update(target._replace(subresource="status"), told, WriteOptions(), "binding")


def review(question: Plain) -> Plain:
    """The answer to a SelfSubjectAccessReview: whoever has the token may do everything."""
    answer = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}}
    return answer | {"spec": question.get("spec") or {}, "status": {"allowed": True}}
