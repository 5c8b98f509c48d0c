"""The parts of core/v1 that devices need: nodes, node selectors, pods with their claims and statuses.

Only members that this project uses have a field; the rest of a node or a pod is kept as unknown fields. The scheduler
and the kubelet use the same pod type.
"""

import functools
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from resourceapi.objects.meta import Always, KubernetesObject, Record
from resourceapi.objects.quantity import Quantity

NodeSelectorOperator = Annotated[str, msgspec.Meta(extra={"go_type": "v1.NodeSelectorOperator"})]


class NodeSelectorRequirement(Record, frozen=True):
    """Compares a node's label or field with values; operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: Always[str] = ""
    operator: Always[NodeSelectorOperator] = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Record, frozen=True):
    """Requirements that must all hold. A term without requirements matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Record, frozen=True):
    """Terms, at least one of which must hold."""

    node_selector_terms: Always[tuple[NodeSelectorTerm, ...]] = ()


class Taint(Record, frozen=True):
    """A node's taint."""

    key: Always[str] = ""
    value: str = ""
    effect: Always[str] = ""
    time_added: datetime | None = None


class NodeSpec(Record, frozen=True):
    """The desired state of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Record, frozen=True):
    """One observation of a node's state, `Ready` among them."""

    type: Always[str] = ""
    status: Always[str] = ""
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class NodeStatus(Record, frozen=True):
    """The observed state of a node."""

    capacity: Mapping[str, Quantity] = {}
    allocatable: Mapping[str, Quantity] = {}
    conditions: tuple[NodeCondition, ...] = ()


class Node(KubernetesObject, frozen=True):
    """A node."""

    KIND: ClassVar[str] = "Node"
    API_VERSION: ClassVar[str] = "v1"

    spec: Always[NodeSpec] = NodeSpec()
    status: Always[NodeStatus] = NodeStatus()


class ResourceClaimUse(Record, frozen=True, omit_defaults=True):
    """A container's reference to one of its pod's claims, and to one request in it."""

    name: Always[str] = ""
    request: str = ""


class ResourceRequirements(Record, frozen=True):
    """What a container needs."""

    limits: Mapping[str, Quantity] = {}
    requests: Mapping[str, Quantity] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(Record, frozen=True):
    """A port of a container, which can have a port of its node, the `host_port`."""

    name: str = ""
    host_port: int = 0
    container_port: Always[int] = 0
    protocol: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")


class Container(Record, frozen=True):
    """One container of a pod; `restart_policy` Always makes an init container a sidecar."""

    name: Always[str] = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: Always[ResourceRequirements] = ResourceRequirements()
    restart_policy: str | None = None

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container keeps running beside the main containers."""
        return self.restart_policy == "Always"


class PodResourceClaim(Record, frozen=True, omit_defaults=True):
    """The pod's name for a claim, which exists already or is created from a template."""

    name: Always[str] = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class NodeAffinity(Record, frozen=True):
    """The nodes on which a pod may run, and those that it prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Any = None


class Affinity(Record, frozen=True):
    """Where a pod may run. Only the affinity for nodes has a type."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Any = None
    pod_anti_affinity: Any = None


class Toleration(Record, frozen=True):
    """A condition on taints, which the pod tolerates if they meet it; operator Equal, Exists, Lt or Gt."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodOS(Record, frozen=True):
    """The operating system that a pod needs."""

    name: Always[str] = ""


class PodSpec(Record, frozen=True):
    """What a pod runs and where."""

    containers: Always[tuple[Container, ...]] = ()
    init_containers: tuple[Container, ...] = ()
    restart_policy: str = ""
    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    host_network: bool = False
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    priority: int | None = None
    overhead: Mapping[str, Quantity] = {}
    os: PodOS | None = None
    resources: ResourceRequirements | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodResourceClaimStatus(Record, frozen=True, omit_defaults=True):
    """The claim that was created for a pod's reference; None if none was needed."""

    name: Always[str] = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Record, frozen=True, omit_defaults=True):
    """The request of the special claim that represents a container's extended resource."""

    container_name: Always[str] = ""
    resource_name: Always[str] = ""
    request_name: Always[str] = ""


class PodExtendedResourceClaimStatus(Record, frozen=True, omit_defaults=True):
    """The special claim that the scheduler created for extended resources."""

    request_mappings: Always[tuple[ContainerExtendedResourceRequest, ...]] = ()
    resource_claim_name: Always[str] = ""


class ContainerStateWaiting(Record, frozen=True):
    """The container waits for its start or restart."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(Record, frozen=True):
    """The container runs."""

    started_at: datetime | None = None


class ContainerStateTerminated(Record, frozen=True):
    """The container has ended."""

    exit_code: Always[int] = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Record, frozen=True):
    """The state of a container: at most one member is set; without one the container is waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None

    @property
    def name(self) -> Literal["waiting", "running", "terminated"]:
        """The name of the state."""
        if self.running is not None:
            return "running"
        return "waiting" if self.terminated is None else "terminated"


class ResourceHealth(Record, frozen=True):
    """The health of one device of a container; `message` is the driver's reason, if there is one."""

    resource_id: Always[str] = msgspec.field(name="resourceID", default="")
    health: str = ""
    message: str | None = None


class ResourceStatus(Record, frozen=True):
    """The devices of one resource, or of one claim (`claim:<name>`, `claim:<name>/<request>`), of a container."""

    name: Always[str] = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(Record, frozen=True):
    """The observed state of a container."""

    name: Always[str] = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: Always[bool] = False
    restart_count: Always[int] = 0
    image: Always[str] = ""
    image_id: Always[str] = msgspec.field(name="imageID", default="")
    started: bool | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class PodStatus(Record, frozen=True):
    """The observed state of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether the pod will never run again."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def all_containers(self) -> tuple[ContainerStatus, ...]:
        """The containers that the kubelet has started or tried to start, in the order of `Pod.all_containers`."""
        return (*self.init_container_statuses, *self.container_statuses)


class Pod(KubernetesObject, frozen=True, dict=True, gc=True):
    """A pod."""

    KIND: ClassVar[str] = "Pod"
    API_VERSION: ClassVar[str] = "v1"

    spec: Always[PodSpec] = PodSpec()
    status: Always[PodStatus] = PodStatus()

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.metadata.uid

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Init containers, then the others: the order in which containers are admitted and requests are counted."""
        return (*self.spec.init_containers, *self.spec.containers)

    def is_init_container(self, container: Container) -> bool:
        """Return whether the container is an init container; decided by name, as the kubelet does."""
        return container.name in self._init_names

    def container(self, name: str) -> Container:
        """Return the container with this name. Raises KeyError."""
        return self._by_name[name]

    @functools.cached_property
    def _init_names(self) -> frozenset[str]:
        return frozenset(init.name for init in self.spec.init_containers)

    @functools.cached_property
    def _by_name(self) -> Mapping[str, Container]:
        return {each.name: each for each in reversed(self.all_containers)}  # the first container of a name wins


class NamespaceStatus(Record, frozen=True):
    """The phase of a namespace, Active or Terminating."""

    phase: str = ""


class Namespace(KubernetesObject, frozen=True):
    """A namespace; a label of it allows admin access."""

    KIND: ClassVar[str] = "Namespace"
    API_VERSION: ClassVar[str] = "v1"

    status: Always[NamespaceStatus] = NamespaceStatus()
