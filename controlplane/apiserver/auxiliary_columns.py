"""The columns that kubectl shows of auxiliary kinds, as upstream's printers write them.

Source: k8s.io/kubernetes pkg/printers/internalversion/printers.go; kube-aggregator's registry for APIServices.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from controlplane.apiserver.columns import (
    AGE,
    Since,
    age_between,
    at,
    count,
    labels_text,
    or_else,
    pods_made,
    selector_text,
)
from controlplane.apiserver.kinds import Column, Plain
from resourceapi.objects import Quantity, QuantityError

_MAX_CELL_ITEMS = 3  # the most items of a list in a cell
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_JOB_STATES = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
"""Condition -> state; the first that applies is shown. The empty condition is a job that is being deleted."""


def _length(*path: str) -> Callable[[Plain], int]:
    return lambda obj: len(at(*path)(obj) or ())


def _flag(*path: str) -> Callable[[Plain], bool]:
    return lambda obj: bool(at(*path)(obj))


def _first_items(items: Sequence[str]) -> str:
    """The first items of a list, and the number of further ones."""
    if not items:
        return "<unset>"
    text = ",".join(items[:_MAX_CELL_ITEMS])
    return text if len(items) <= _MAX_CELL_ITEMS else f"{text} + {len(items) - _MAX_CELL_ITEMS} more..."


def _amount(text: Any) -> str:
    try:
        return str(Quantity.parse(str(text or "0")))
    except QuantityError:
        return str(text)


def _modes(modes: Iterable[str]) -> str:
    has = {*(modes or ())}
    return ",".join(short for mode, short in _MODES.items() if mode in has)


def _phase(obj: Plain) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(at("status", "phase")(obj))


def _storage_class(obj: Plain) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get(_CLASS_ANNOTATION, at("spec", "storageClassName")(obj)))


def _claimed_by(obj: Plain) -> str:
    claim = at("spec", "claimRef")(obj)
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _capacity_of_claim(obj: Plain) -> str:
    return _amount(at("status", "capacity", "storage")(obj)) if at("spec", "volumeName")(obj) else ""


def _modes_of_claim(obj: Plain) -> str:
    return _modes(at("status", "accessModes")(obj)) if at("spec", "volumeName")(obj) else ""


def _completions(obj: Plain) -> str:
    done, wanted = count("status", "succeeded")(obj), at("spec", "completions")(obj)
    if wanted != "":
        return f"{done}/{wanted}"
    parallel = at("spec", "parallelism")(obj) or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_state(obj: Plain) -> str:
    true = {each.get("type") for each in at("status", "conditions")(obj) or () if each.get("status") == "True"}
    if obj["metadata"].get("deletionTimestamp"):
        true.add("")
    return next((state for kind, state in _JOB_STATES if kind in true), "Running")


def _job_duration(obj: Plain) -> Any:
    begin, end = at("status", "startTime")(obj), at("status", "completionTime")(obj)
    if not begin:
        return ""
    return age_between(begin, end) if end else Since(begin)


def _last_schedule(obj: Plain) -> Any:
    last = at("status", "lastScheduleTime")(obj)
    return Since(last) if last else "<none>"


def _suspended(obj: Plain) -> str:
    return "True" if at("spec", "suspend")(obj) else "False"


def _or_not_available(*path: str) -> Callable[[Plain], str]:
    def cell(obj: Plain) -> str:
        value = at(*path)(obj)
        return "N/A" if value == "" else str(value)

    return cell


def _reference(obj: Plain) -> str:
    target = at("spec", "scaleTargetRef")(obj) or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(obj: Plain) -> str:
    """The metrics of an autoscaler, with their current values."""
    metrics, now = at("spec", "metrics")(obj) or (), at("status", "currentMetrics")(obj) or ()
    texts = [_metric(each, now[index] if index < len(now) else {}) for index, each in enumerate(metrics)]
    if not texts:
        return "<none>"
    return ", ".join(texts[:2]) + (f" + {len(texts) - 2} more..." if len(texts) > 2 else "")


def _metric(metric: Plain, status: Plain) -> str:
    kind = str(metric.get("type", ""))
    member = kind[:1].lower() + kind[1:]
    source, current = metric.get(member), (status.get(member) or {}).get("current") or {}
    if member not in ("external", "pods", "object", "resource", "containerResource") or not isinstance(source, dict):
        return "<unknown type>"
    target = source.get("target") or {}
    is_named = member in ("resource", "containerResource")
    if target.get("averageValue") is not None or member == "pods":
        text = f"{_amount_or_unknown(current.get('averageValue'))}/{_amount(target.get('averageValue'))}"
        text += " (avg)" if member in ("external", "object") else ""
    elif is_named:
        share, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        text = f"{'<unknown>' if share is None else f'{share}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"
    else:
        text = f"{_amount_or_unknown(current.get('value'))}/{_amount(target.get('value'))}"
    return f"{source.get('name', '')}: {text}" if is_named else text


def _amount_or_unknown(amount: Any) -> str:
    return "<unknown>" if amount is None else _amount(amount)


def _hosts(obj: Plain) -> str:
    rules = at("spec", "rules")(obj) or ()
    hosts = ",".join(each["host"] for each in rules[:_MAX_CELL_ITEMS] if each.get("host"))
    return (
        (hosts + (f" + {len(rules) - _MAX_CELL_ITEMS} more..." if len(rules) > _MAX_CELL_ITEMS else ""))
        if hosts
        else "*"
    )


def _ingress_address(obj: Plain) -> str:
    found = at("status", "loadBalancer", "ingress")(obj) or ()
    return ",".join(sorted({each.get("ip") or each.get("hostname") or "" for each in found} - {""}))


def _ingress_parameters(obj: Plain) -> str:
    found = at("spec", "parameters")(obj)
    if not found:
        return "<none>"
    group = f".{found['apiGroup']}" if found.get("apiGroup") is not None else ""
    return f"{found.get('kind', '')}{group}/{found.get('name', '')}"


def _endpoints(obj: Plain) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        addresses = [str(each.get("ip", "")) for each in subset.get("addresses") or ()]
        ports = [str(each.get("port", 0)) for each in subset.get("ports") or ()]
        joined = [[f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in addresses] for port in ports]
        found += [each for some in joined or [addresses] for each in some]
    return _first_items(found) if obj.get("subsets") and found else ("" if obj.get("subsets") else "<none>")


def _slice_ports(obj: Plain) -> str:
    return _first_items([str(each.get("port") or each.get("name") or "*") for each in obj.get("ports") or ()])


def _slice_addresses(obj: Plain) -> str:
    return _first_items([address for each in obj.get("endpoints") or () for address in each.get("addresses") or ()])


def _quota(*, of_limits: bool) -> Callable[[Plain], str]:
    def cell(obj: Plain) -> str:
        hard, used = at("status", "hard")(obj) or {}, at("status", "used")(obj) or {}
        names = [name for name in sorted(hard) if name.startswith("limits.") == of_limits]
        return ", ".join(f"{name}: {_amount(used.get(name))}/{_amount(hard[name])}" for name in names)

    return cell


def _audiences(obj: Plain) -> str:
    asked = at("spec", "tokenRequests")(obj)
    return "<unset>" if asked == "" else ",".join(each.get("audience", "") for each in asked)


def _parameter_kind(obj: Plain) -> str:
    found = at("spec", "paramKind")(obj)
    return f"{found.get('apiVersion', '')}/{found.get('kind', '')}" if found else "<unset>"


def _parameter(obj: Plain) -> str:
    found = at("spec", "paramRef")(obj) or {}
    return f"{found.get('namespace') or '*'}/{found['name']}" if found.get("name") else "<unset>"


def _address_parent(obj: Plain) -> str:
    parent = at("spec", "parentRef")(obj)
    if not parent:
        return "<none>"
    resource = ".".join(filter(None, (parent.get("resource", ""), parent.get("group", "")))).lower()
    return "/".join((resource, *filter(None, (parent.get("namespace"),)), parent.get("name", "")))


def _migrated(obj: Plain) -> str:
    asked = at("spec", "resource")(obj) or {}
    return ".".join(filter(None, (asked.get("resource"), asked.get("group"))))


def _migration_state(obj: Plain) -> str:
    true = [each.get("type") for each in at("status", "conditions")(obj) or () if each.get("status") == "True"]
    return next((str(kind) for kind in reversed(true) if kind in ("Running", "Failed", "Succeeded")), "Unknown")


def _controller(obj: Plain) -> str:
    owner = next((each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    if owner is None:
        return "<none>"
    group = owner["apiVersion"].rpartition("/")[0]
    return f"{owner['kind'].lower()}{f'.{group}' if group else ''}/{owner['name']}"


def _dangling(obj: Plain) -> str:
    conditions = at("status", "conditions")(obj) or ()
    return next((str(each.get("status", "")) for each in conditions if each.get("type") == "Dangling"), "?")


def _serving(obj: Plain) -> str:
    service = at("spec", "service")(obj)
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(obj: Plain) -> str:
    conditions = at("status", "conditions")(obj) or ()
    found = next((each for each in conditions if each.get("type") == "Available"), None)
    if found is None:
        return "Unknown"
    is_explained = found.get("status") != "True" and found.get("reason")
    return f"{found.get('status', '')} ({found['reason']})" if is_explained else str(found.get("status", ""))


def _queuing(name: str) -> Column:
    return Column(name[:1].upper() + name[1:], or_else("<none>", "spec", "limited", "limitResponse", "queuing", name))


_WEBHOOKS = (Column("Webhooks", _length("webhooks"), "integer"), AGE)
_BINDING = (Column("PolicyName", at("spec", "policyName")), Column("ParamRef", _parameter), AGE)
COLUMNS_BY_KIND: dict[str, tuple[Column, ...]] = {
    "APIService": (Column("Service", _serving), Column("Available", _available), AGE),
    "CSIDriver": (
        Column("AttachRequired", _flag("spec", "attachRequired"), "boolean"),
        Column("PodInfoOnMount", _flag("spec", "podInfoOnMount"), "boolean"),
        Column("StorageCapacity", _flag("spec", "storageCapacity"), "boolean"),
        Column("TokenRequests", _audiences),
        Column("RequiresRepublish", _flag("spec", "requiresRepublish"), "boolean"),
        Column("Modes", lambda obj: ",".join(at("spec", "volumeLifecycleModes")(obj) or ()) or "<none>"),
        AGE,
    ),
    "CSINode": (Column("Drivers", _length("spec", "drivers"), "integer"), AGE),
    "CSIStorageCapacity": (
        Column("StorageClassName", at("storageClassName")),
        Column("Capacity", or_else("<unset>", "capacity")),
    ),
    "ControllerRevision": (Column("Controller", _controller), Column("Revision", count("revision")), AGE),
    "CronJob": (
        Column("Schedule", at("spec", "schedule")),
        Column("Timezone", or_else("<none>", "spec", "timeZone")),
        Column("Suspend", _suspended, "boolean"),
        Column("Active", _length("status", "active"), "integer"),
        Column("Last Schedule", _last_schedule),
        AGE,
        *pods_made("spec", "jobTemplate", "spec", "template", selector="spec.jobTemplate.spec"),
    ),
    "EndpointSlice": (
        Column("AddressType", at("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_addresses),
        AGE,
    ),
    "Endpoints": (Column("Endpoints", _endpoints), AGE),
    "FlowSchema": (
        Column("PriorityLevel", at("spec", "priorityLevelConfiguration", "name")),
        Column("MatchingPrecedence", count("spec", "matchingPrecedence")),
        Column("DistinguisherMethod", or_else("<none>", "spec", "distinguisherMethod", "type")),
        AGE,
        Column("MissingPL", _dangling),
    ),
    "HorizontalPodAutoscaler": (
        Column("Reference", _reference),
        Column("Targets", _targets),
        Column("MinPods", lambda obj: str(or_else("<unset>", "spec", "minReplicas")(obj))),
        Column("MaxPods", count("spec", "maxReplicas")),
        Column("Replicas", count("status", "currentReplicas")),
        AGE,
    ),
    "IPAddress": (Column("ParentRef", _address_parent), AGE._replace(name="")),  # a mistake in upstream's columns
    "Ingress": (
        Column("Class", or_else("<none>", "spec", "ingressClassName")),
        Column("Hosts", _hosts),
        Column("Address", _ingress_address),
        Column("Ports", lambda obj: "80, 443" if at("spec", "tls")(obj) else "80"),
        AGE,
    ),
    "IngressClass": (Column("Controller", at("spec", "controller")), Column("Parameters", _ingress_parameters), AGE),
    "Job": (
        Column("Status", _job_state),
        Column("Completions", _completions),
        Column("Duration", _job_duration),
        AGE,
        *pods_made("spec", "template"),
    ),
    "LimitRange": (Column("Created At", at("metadata", "creationTimestamp"), "date"),),
    "MutatingAdmissionPolicy": (
        Column("Mutations", _length("spec", "mutations"), "integer"),
        Column("ParamKind", _parameter_kind),
        AGE,
    ),
    "MutatingAdmissionPolicyBinding": _BINDING,
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "NetworkPolicy": (Column("Pod-Selector", lambda obj: selector_text(at("spec", "podSelector")(obj))), AGE),
    "PersistentVolume": (
        Column("Capacity", lambda obj: _amount(at("spec", "capacity", "storage")(obj))),
        Column("Access Modes", lambda obj: _modes(at("spec", "accessModes")(obj))),
        Column("Reclaim Policy", at("spec", "persistentVolumeReclaimPolicy")),
        Column("Status", _phase),
        Column("Claim", _claimed_by),
        Column("StorageClass", _storage_class),
        Column("VolumeAttributesClass", or_else("<unset>", "spec", "volumeAttributesClassName")),
        Column("Reason", at("status", "reason")),
        AGE,
        Column("VolumeMode", or_else("<unset>", "spec", "volumeMode"), priority=1),
    ),
    "PersistentVolumeClaim": (
        Column("Status", _phase),
        Column("Volume", at("spec", "volumeName")),
        Column("Capacity", _capacity_of_claim),
        Column("Access Modes", _modes_of_claim),
        Column("StorageClass", _storage_class),
        Column("VolumeAttributesClass", or_else("<unset>", "spec", "volumeAttributesClassName")),
        AGE,
        Column("VolumeMode", or_else("<unset>", "spec", "volumeMode"), priority=1),
    ),
    "PodDisruptionBudget": (
        Column("Min Available", _or_not_available("spec", "minAvailable")),
        Column("Max Unavailable", _or_not_available("spec", "maxUnavailable")),
        Column("Allowed Disruptions", count("status", "disruptionsAllowed"), "integer"),
        AGE,
    ),
    "PodTemplate": (
        *(column._replace(priority=0) for column in pods_made("template", selector="")),
        Column("Pod Labels", lambda obj: labels_text(at("template", "metadata", "labels")(obj))),
    ),
    "PriorityLevelConfiguration": (
        Column("Type", at("spec", "type")),
        Column("NominalConcurrencyShares", or_else("<none>", "spec", "limited", "nominalConcurrencyShares")),
        _queuing("queues"),
        _queuing("handSize"),
        _queuing("queueLengthLimit"),
        AGE,
    ),
    "ResourceQuota": (Column("Request", _quota(of_limits=False)), Column("Limit", _quota(of_limits=True)), AGE),
    "ServiceCIDR": (Column("CIDRs", lambda obj: ",".join(at("spec", "cidrs")(obj) or ())), AGE),
    "StorageVersionMigration": (
        Column("Name", at("metadata", "name")),
        Column("Resource", _migrated),
        Column("Status", _migration_state),
    ),
    "ValidatingAdmissionPolicy": (
        Column("Validations", _length("spec", "validations"), "integer"),
        Column("ParamKind", _parameter_kind),
        AGE,
    ),
    "ValidatingAdmissionPolicyBinding": _BINDING,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "VolumeAttachment": (
        Column("Attacher", at("spec", "attacher"), format="name"),
        Column("PV", at("spec", "source", "persistentVolumeName")),
        Column("Node", at("spec", "nodeName")),
        Column("Attached", _flag("status", "attached"), "boolean"),
        AGE,
    ),
    "VolumeAttributesClass": (Column("DriverName", at("driverName")), AGE),
}
"""Kind -> columns."""
