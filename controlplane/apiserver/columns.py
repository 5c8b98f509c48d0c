"""The columns that kubectl shows of each built-in kind, as upstream's printers write them (allocator.md 5.13)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from controlplane.apiserver.kinds import Column, Plain

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY


def age_text(seconds: float) -> str:
    """Return a duration in kubectl's format: 75s, 5m3s, 47m, 5h10m, 36h, 3d4h, 2y112d."""
    if seconds < -1:
        return "<invalid>"
    total = max(0, int(seconds))
    if total < 2 * _MINUTE:
        return f"{total}s"
    if total < 10 * _MINUTE:
        return _two(total, _MINUTE, "m", 1, "s")
    if total < 3 * _HOUR:
        return f"{total // _MINUTE}m"
    if total < 8 * _HOUR:
        return _two(total, _HOUR, "h", _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    if total < 8 * _DAY:
        return _two(total, _DAY, "d", _HOUR, "h")
    if total < 2 * _YEAR:
        return f"{total // _DAY}d"
    if total < 8 * _YEAR:
        return _two(total, _YEAR, "y", _DAY, "d")
    return f"{total // _YEAR}y"


class Since(NamedTuple):
    """The value of an age's cell: the time from which it counts. The code that shows it has the clock."""

    time: str | None


def age_since(text: str | None, now: datetime) -> str:
    """Return the age of a time."""
    if not text:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return "<unknown>"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return age_text((now - moment).total_seconds())


def age_between(begin: str, end: str) -> str:
    """Return the duration between two times."""
    try:
        return age_text((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())
    except (TypeError, ValueError):
        return "<unknown>"


def at(*path: str | int) -> Callable[[Plain], Any]:
    """Return a cell with the value at a path; the empty text if there is none."""

    def cell(obj: Plain) -> Any:
        value: Any = obj
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return ""
        return value if value is not None else ""

    return cell


def age(obj: Plain) -> Since:
    """Return the cell of the column Age."""
    return Since(obj["metadata"].get("creationTimestamp"))


AGE = Column("Age", age)


def claim_state(obj: Plain) -> str:
    """Return a claim's state: deleted, pending, allocated, reserved, in upstream's combinations."""
    status, words = obj.get("status") or {}, []
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    if deleted:
        words.append("deleted")
    if status.get("allocation"):
        words.append("allocated")
    elif not deleted:
        words.append("pending")
    if status.get("reservedFor"):
        words.append("reserved")
    return ",".join(words)


def _two(total: int, big: int, big_name: str, small: int, small_name: str) -> str:
    rest = total % big // small
    return f"{total // big}{big_name}" + (f"{rest}{small_name}" if rest else "")


def _node_status(obj: Plain) -> str:
    conditions = at("status", "conditions")(obj) or []
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if at("spec", "unschedulable")(obj):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(obj: Plain) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _address(kind: str) -> Callable[[Plain], str]:
    def cell(obj: Plain) -> str:
        addresses = at("status", "addresses")(obj) or []
        return next((each.get("address", "") for each in addresses if each.get("type") == kind), "<none>")

    return cell


def _containers(obj: Plain) -> list[Plain]:
    return at("status", "containerStatuses")(obj) or []


def _ready(obj: Plain) -> str:
    wanted = len(at("spec", "containers")(obj) or [])
    return f"{sum(bool(each.get('ready')) for each in _containers(obj))}/{wanted}"


def _pod_status(obj: Plain) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(at("status", "reason")(obj) or at("status", "phase")(obj))


def _restarts(obj: Plain) -> str:
    return str(sum(each.get("restartCount", 0) for each in _containers(obj)))


def or_else(otherwise: str, *path: str | int) -> Callable[[Plain], Any]:
    """Return a cell with the value at a path, or `otherwise` if it is empty."""
    return lambda obj: at(*path)(obj) or otherwise


def _data(obj: Plain) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _last_seen(obj: Plain) -> Since:
    return Since(obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp"))


def _event_object(obj: Plain) -> str:
    about = obj.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _subjects(kind: str) -> Callable[[Plain], str]:
    def cell(obj: Plain) -> str:
        found = [each for each in obj.get("subjects") or () if each.get("kind") == kind]
        return ", ".join("/".join(filter(None, (each.get("namespace"), each.get("name")))) for each in found)

    return cell


def count(*path: str) -> Callable[[Plain], int]:
    """Return a cell with the number at a path; 0 if there is none."""
    return lambda obj: at(*path)(obj) or 0


def _wanted(obj: Plain) -> int:
    found = at("spec", "replicas")(obj)
    return found if isinstance(found, int) else 1


def _ready_of_wanted(obj: Plain) -> str:
    return f"{count('status', 'readyReplicas')(obj)}/{_wanted(obj)}"


def _node_selector(obj: Plain) -> str:
    return labels_text(at("spec", "template", "spec", "nodeSelector")(obj))


def labels_text(labels: Any) -> str:
    """Return the text of labels in a cell."""
    found = labels or {}
    return ",".join(f"{name}={found[name]}" for name in sorted(found)) or "<none>"


def selector_text(selector: Any) -> str:
    """Return the text of a label selector in a cell, by key."""
    found: Plain = selector or {}
    pieces = [(name, f"{name}={value}") for name, value in (found.get("matchLabels") or {}).items()]
    for each in found.get("matchExpressions") or ():
        key, values = str(each.get("key")), ",".join(sorted(each.get("values") or ()))
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        pieces.append((key, words.get(str(each.get("operator")), key)))
    return ",".join(text for _, text in sorted(pieces)) or "<none>"


def pods_made(*path: str, selector: str = "spec") -> tuple[Column, ...]:
    """Return the columns for the containers of the pod template at a path, and for the selector of its pods."""
    containers = at(*path, "spec", "containers")

    def listed(name: str) -> Callable[[Plain], str]:
        return lambda obj: ",".join(str(each.get(name) or "") for each in containers(obj) or ())

    shown = (
        Column("Containers", listed("name"), priority=1),
        Column("Images", listed("image"), priority=1),
    )
    if not selector:
        return shown
    where = (*selector.split("."), "selector")
    return (*shown, Column("Selector", lambda obj: selector_text(at(*where)(obj)), priority=1))


def _cluster_address(obj: Plain) -> str:
    return str((at("spec", "clusterIPs")(obj) or ["<none>"])[0])


def _outer_address(obj: Plain) -> str:
    """The external address of a service. A load balancer has one only if a client wrote it to the status."""
    spec = obj.get("spec") or {}
    found = []
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or "")
    if spec.get("type") == "LoadBalancer":
        balancers = at("status", "loadBalancer", "ingress")(obj) or ()
        found = sorted({each.get("ip") or each.get("hostname") or "" for each in balancers} - {""})
    text = ",".join([*found, *(spec.get("externalIPs") or ())])
    return text or ("<pending>" if spec.get("type") == "LoadBalancer" else "<none>")


def _ports(obj: Plain) -> str:
    texts = []
    for port in at("spec", "ports")(obj) or ():
        outer = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port', 0)}{outer}/{port.get('protocol', '')}")
    return ",".join(texts) or "<none>"


def _version(obj: Plain) -> Any:
    return at("status", "nodeInfo", "kubeletVersion")(obj)


CLAIM = (Column("State", claim_state), AGE)
SLICE = (
    Column("Node", at("spec", "nodeName")),
    Column("Driver", at("spec", "driver")),
    Column("Pool", at("spec", "pool", "name")),
    AGE,
)
TAINT_RULE = (
    Column("Key", at("spec", "taint", "key")),
    Column("Value", at("spec", "taint", "value")),
    Column("Effect", at("spec", "taint", "effect")),
    Column("TimeAdded", lambda obj: Since(at("spec", "taint", "timeAdded")(obj) or None)),
    AGE,
)
ONLY_AGE = (AGE,)
CREATED_AT = (Column("Created At", at("metadata", "creationTimestamp"), "date"),)
ROLE_BINDING = (
    Column("Role", lambda obj: "/".join(str(at("roleRef", name)(obj)) for name in ("kind", "name"))),
    AGE,
    *(Column(f"{kind}s", _subjects(kind), priority=1) for kind in ("User", "Group", "ServiceAccount")),
)
LEASE = (Column("Holder", at("spec", "holderIdentity")), AGE)
RUNTIME_CLASS = (Column("Handler", at("handler")), AGE)
STORAGE_CLASS = (
    Column("Provisioner", at("provisioner")),
    Column("ReclaimPolicy", at("reclaimPolicy")),
    Column("VolumeBindingMode", at("volumeBindingMode")),
    Column("AllowVolumeExpansion", lambda obj: bool(obj.get("allowVolumeExpansion"))),
    AGE,
)
PRIORITY_CLASS = (
    Column("Value", at("value"), "integer"),
    Column("Global-Default", lambda obj: bool(obj.get("globalDefault")), "boolean"),
    AGE,
    Column("PreemptionPolicy", at("preemptionPolicy")),
)
DEPLOYMENT = (
    Column("Ready", _ready_of_wanted),
    Column("Up-to-date", count("status", "updatedReplicas")),
    Column("Available", count("status", "availableReplicas")),
    AGE,
    *pods_made("spec", "template"),
)
_REPLICAS = (
    Column("Desired", _wanted, "integer"),
    Column("Current", count("status", "replicas"), "integer"),
    Column("Ready", count("status", "readyReplicas"), "integer"),
    AGE,
)
REPLICA_SET = (*_REPLICAS, *pods_made("spec", "template"))
REPLICATION_CONTROLLER = (
    *_REPLICAS,
    *pods_made("spec", "template", selector=""),
    Column("Selector", lambda obj: labels_text(at("spec", "selector")(obj)), priority=1),
)
STATEFUL_SET = (Column("Ready", _ready_of_wanted), AGE, *pods_made("spec", "template", selector=""))
DAEMON_SET = (
    Column("Desired", count("status", "desiredNumberScheduled"), "integer"),
    Column("Current", count("status", "currentNumberScheduled"), "integer"),
    Column("Ready", count("status", "numberReady"), "integer"),
    Column("Up-to-date", count("status", "updatedNumberScheduled"), "integer"),
    Column("Available", count("status", "numberAvailable"), "integer"),
    Column("Node Selector", _node_selector),
    AGE,
    *pods_made("spec", "template"),
)
NAMESPACE = (Column("Status", at("status", "phase")), AGE)
NODE = (
    Column("Status", _node_status),
    Column("Roles", _roles),
    AGE,
    Column("Version", _version),
    Column("Internal-IP", _address("InternalIP"), priority=1),
    Column("External-IP", _address("ExternalIP"), priority=1),
    Column("OS-Image", or_else("<unknown>", "status", "nodeInfo", "osImage"), priority=1),
    Column("Kernel-Version", or_else("<unknown>", "status", "nodeInfo", "kernelVersion"), priority=1),
    Column("Container-Runtime", or_else("<unknown>", "status", "nodeInfo", "containerRuntimeVersion"), priority=1),
)
POD = (
    Column("Ready", _ready),
    Column("Status", _pod_status),
    Column("Restarts", _restarts),
    AGE,
    Column("IP", or_else("<none>", "status", "podIP"), priority=1),
    Column("Node", or_else("<none>", "spec", "nodeName"), priority=1),
    Column("Nominated Node", or_else("<none>", "status", "nominatedNodeName"), priority=1),
    Column("Readiness Gates", or_else("<none>", "status", "readiness"), priority=1),
)
SERVICE = (
    Column("Type", at("spec", "type")),
    Column("Cluster-IP", _cluster_address),
    Column("External-IP", _outer_address),
    Column("Port(s)", _ports),
    AGE,
    Column("Selector", lambda obj: labels_text(at("spec", "selector")(obj)), priority=1),
)
CONFIG_MAP = (Column("Data", _data), AGE)
SECRET = (Column("Type", at("type")), Column("Data", _data), AGE)
EVENT = (
    Column("Last Seen", _last_seen),
    Column("Type", at("type")),
    Column("Reason", at("reason")),
    Column("Object", _event_object),
    Column("Message", lambda obj: str(obj.get("message", "")).strip()),
)
