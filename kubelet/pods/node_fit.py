"""Whether a pod fits its node: operating system, resources, node affinity, name, host ports, taints. Pure.

The kubelet checks this after it has allocated the pod's devices. The other pods that count are the active ones, with
all that they request. An extended resource that the node does not have is not checked, because something else in the
cluster can provide it.
Source: the kubelet's `lifecycle/predicate.go` and the scheduler's `AdmissionCheck`; compared with 1.36 and 1.37.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kubelet.release import EXTENDED_RESOURCE, Release
from resourceapi.objects.claims import tolerates
from resourceapi.objects.core import Container, ContainerPort, Node, Pod, Taint
from resourceapi.objects.names import is_extended_resource
from resourceapi.objects.pod_requests import pod_requests, units
from resourceapi.objects.selectors import pod_selects

OS_LABEL = "kubernetes.io/os"
OPERATING_SYSTEM = "linux"

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared only
_NO_EXECUTE = "NoExecute"


class Rejection(NamedTuple):
    """Why a pod is rejected: the reason in its status and event, and the event's message."""

    reason: str
    message: str


class Taken(NamedTuple):
    """What a pod takes of its node: what it requests, and (address, protocol, number) of its host ports."""

    requests: Mapping[str, int]
    ports: frozenset[tuple[str, str, int]]

    @classmethod
    def by(cls, pod: Pod) -> "Taken":
        """Return what a pod takes; ports only of containers that keep running."""
        return cls(pod_requests(pod), frozenset(_host_ports(pod)))


class Shortage(NamedTuple):
    """A resource of which the node has less than the pod requests; cpu is in thousandths."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """The amount that other pods would have to free."""
        return self.requested - (self.capacity - self.used)

    @property
    def rejection(self) -> Rejection:
        """The rejection for this shortage."""
        amounts = f"requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"
        return Rejection(f"OutOf{self.resource}", f"Node didn't have enough resource: {self.resource}, {amounts}")


def other_system(pod: Pod) -> Rejection | None:
    """Return the rejection of a pod for another operating system; it is checked before everything else."""
    if pod.metadata.labels.get(OS_LABEL, OPERATING_SYSTEM) != OPERATING_SYSTEM:
        text = f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label"
        return Rejection("PodOSSelectorNodeLabelDoesNotMatch", text)
    if pod.spec.os is not None and pod.spec.os.name != OPERATING_SYSTEM:
        return Rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def shortages(pod: Pod, node: Node, others: Sequence[Taken], release: Release) -> list[Shortage]:
    """Return the resources of which the node has too little left for the pod."""
    capacity = units(node.status.allocatable)
    used: defaultdict[str, int] = defaultdict(int)
    for other in others:
        for name, amount in other.requests.items():
            used[name] += amount
    wanted = pod_requests(_without_missing(pod, node, release))
    first = ("cpu", "memory", "ephemeral-storage")
    in_order = {name: wanted[name] for name in first if name in wanted} | wanted
    found = [Shortage("pods", 1, len(others), capacity.get("pods", 0))]
    found += [Shortage(name, amount, used[name], capacity.get(name, 0)) for name, amount in in_order.items() if amount]
    return [each for each in found if each.missing > 0]


def misfits(pod: Pod, node: Node, others: Iterable[Taken], *, is_static: bool) -> list[Rejection]:
    """Return what other than resources makes the pod not fit. A static pod tolerates all taints."""
    found = []
    if not pod_selects(pod, node):
        found.append(_predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"))
    if pod.spec.node_name not in ("", node.metadata.name):
        found.append(_predicate("NodeName", "node(s) didn't match the requested node name"))
    if not _has_free_ports(pod, others):
        found.append(_predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"))
    if not is_static and any(each.effect == _NO_EXECUTE and not _is_tolerated(pod, each) for each in node.spec.taints):
        found.append(_predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
    return found


def is_affinity(rejections: Sequence[Rejection]) -> bool:
    """Return whether only labels of the node are the reason, so that a newer node can be a better one."""
    return [each.reason for each in rejections] == ["NodeAffinity"]


def _predicate(name: str, text: str) -> Rejection:
    return Rejection(name, f"Predicate {name} failed: {text}")


def _without_missing(pod: Pod, node: Node, release: Release) -> Pod:
    """Return the pod without requests for extended resources that the node does not have or that a claim provides."""
    claim = pod.status.extended_resource_claim_status
    mapped = claim.request_mappings if claim is not None and release.has(EXTENDED_RESOURCE) else ()
    claimed = {(each.container_name, each.resource_name) for each in mapped}

    def is_checked(container: Container, name: str) -> bool:
        if (container.name, name) in claimed:
            return False
        return not is_extended_resource(name) or name in node.status.allocatable

    def checked(container: Container) -> Container:
        limits, requests = (
            {name: amount for name, amount in amounts.items() if is_checked(container, name)}
            for amounts in (container.resources.limits, container.resources.requests)
        )
        return replace(container, resources=replace(container.resources, limits=limits, requests=requests))

    parts = {
        "containers": tuple(map(checked, pod.spec.containers)),
        "init_containers": tuple(map(checked, pod.spec.init_containers)),
    }
    return replace(pod, spec=replace(pod.spec, **parts))


def _has_free_ports(pod: Pod, others: Iterable[Taken]) -> bool:
    wanted = Taken.by(pod).ports
    return not wanted or not any(
        port[1:] == other[1:] and (port[0] == other[0] or _EVERY_ADDRESS in (port[0], other[0]))
        for port in wanted
        for taken in others
        for other in taken.ports
    )


def _host_ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    sidecars = [each for each in pod.spec.init_containers if each.is_sidecar]
    for container in (*sidecars, *pod.spec.containers):
        for port in container.ports:
            if number := _host_port(pod, port):
                yield port.host_ip or _EVERY_ADDRESS, port.protocol or "TCP", number


def _host_port(pod: Pod, port: ContainerPort) -> int:
    return port.host_port or (port.container_port if pod.spec.host_network else 0)


def _is_tolerated(pod: Pod, taint: Taint) -> bool:
    return any(tolerates(each, taint) for each in pod.spec.tolerations)
