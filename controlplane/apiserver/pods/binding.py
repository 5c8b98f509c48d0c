"""Binding pods to nodes."""

from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.options import WriteOptions
from controlplane.apiserver.pods.conditions import with_condition
from controlplane.apiserver.preconditions import check_uid
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.status import ApiError, bad_request, conflict
from controlplane.apiserver.target import Target
from resourceapi.objects import ErrorList, ObjectMeta, from_dict, to_dict
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import dns_subdomain

_SCHEDULED = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
_COPIED = ("annotations", "labels")


def bind(rest: Rest, target: Target, binding: Plain, options: WriteOptions) -> Outcome:
    """Bind a pod to the node of a Binding: set its condition, and add the Binding's labels.

    As on a real server, this changes neither the generation nor the field managers. Raises ApiError, also if the pod
    has a node, or another uid than the Binding.
    """
    metadata, where = (_object(binding.get(name)) for name in ("metadata", "target"))
    if metadata.get("name") != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    node = where.get("name") or ""
    _check_node(where.get("kind") or "", node, is_name_checked=rest.release.checks_bound_nodes)
    sent = {**binding, "apiVersion": "v1", "kind": "Binding"}
    warnings = rest.admit_sent(target, sent, is_dry_run=options.dry_run)
    one = target._replace(subresource="")
    pod = rest.get(one)
    if metadata.get("uid"):
        check_uid(one, pod, str(metadata["uid"]), is_dry_run=options.dry_run)
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    why = ""
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {target.name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {target.name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {target.name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("", "pods/binding", target.name, why)
    if options.dry_run:
        return Outcome(pod, warnings)
    copied = {name: {**(pod["metadata"].get(name) or {}), **_object(metadata.get(name))} for name in _COPIED}
    known = from_dict(ObjectMeta, {**pod["metadata"], **{name: texts for name, texts in copied.items() if texts}})
    bound = {
        **pod,
        "metadata": to_dict(known),
        "spec": {**spec, "nodeName": node},
        "status": with_condition(status, _SCHEDULED, rest.clock()),
    }
    return Outcome(rest.put(target.kind, target.key, bound), warnings)


def _check_node(kind: str, name: str, *, is_name_checked: bool) -> None:
    errors = ErrorList()
    if kind not in ("", "Node"):
        errors.not_supported("target.kind", kind, ["Node", "<empty>"])
    if not name:
        errors.required("target.name")
    elif not errors and is_name_checked:
        add_invalid(errors, "target.name", name, dns_subdomain(name))
    if errors:
        texts = list(map(str, errors))
        raise ApiError(500, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def _object(value: Any) -> Plain:
    return value if isinstance(value, dict) else {}
