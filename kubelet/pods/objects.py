"""Pods as the kubelet has them, and YAML loading.

What a pod says of claims is said in core/v1's own types. The rest is the kubelet's: quantities as the manifest writes
them, which are refused at admission, and what becomes of each container, which upstream's kubelet keeps apart from the
API's objects, too. What it knows is told in words (`running`), as `nodeplug kubelet` shows it.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kubelet.errors import KubeletError
from resourceapi.manifests import ManifestError, read_documents
from resourceapi.objects import Quantity, QuantityError
from resourceapi.objects.core import (
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    ResourceClaimUse,
)
from resourceapi.objects.pod_requests import peak

_DECIDED = ("extendedResourceClaimStatus", "resourceClaimStatuses")  # status fields that the kubelet only reads


class PodFileError(KubeletError):
    """A file does not hold pods; names the file and the field."""


class ObjectMeta(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who a pod is. An empty `uid` is filled in at admission."""

    name: str
    namespace: str = "default"
    uid: str = ""


class ResourceRequirements(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a container asks for: devices of plugins in `limits`, claims of the pod by their names in `claims`."""

    limits: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    requests: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaimUse, ...] = ()


class Container(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A container; an init container with `restart_policy` Always is a sidecar.

    Of other init containers, which end well at once, one that `stays` runs until somebody ends it; no API has that.
    """

    name: str
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    stays: bool = False

    @property
    def is_sidecar(self) -> bool:
        """True for an init container that keeps running."""
        return self.restart_policy == "Always"

    def limits(self) -> dict[str, int]:
        """Resource -> whole units, rounded up. Raises `QuantityError`."""
        return {name: Quantity.parse(str(amount)).value() for name, amount in self.resources.limits.items()}


class PodSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a pod runs."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    restart_policy: str = "Always"
    resource_claims: tuple[PodResourceClaim, ...] = ()


class ResourceHealth(Struct, frozen=True, rename={"resource_id": "resourceID"}, omit_defaults=True):
    """The health of one device of a container; `message` says why, if the device's driver did."""

    resource_id: str
    health: str
    message: str = ""


class ResourceStatus(Struct, frozen=True):
    """The devices of one resource, or of one claim (`claim:<name>`, `claim:<name>/<request>`), of a container."""

    name: str
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of a container. `state` is `waiting`, `running` or `terminated`."""

    name: str
    state: str = "waiting"
    reason: str = ""
    message: str = ""
    restart_count: int = 0
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class PodStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None

    @property
    def is_terminal(self) -> bool:
        """True when the pod will never run again."""
        return self.phase in ("Succeeded", "Failed")


class Pod(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod as the API server hands it to the kubelet."""

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def uid(self) -> str:
        """The pod's identity."""
        return self.metadata.uid

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """In the order in which they are admitted: init containers, then the others."""
        return (*self.spec.init_containers, *self.spec.containers)

    def is_init_container(self, container: Container) -> bool:
        """Tell by name, as the kubelet does."""
        return any(init.name == container.name for init in self.spec.init_containers)

    def container(self, name: str) -> Container:
        """The container called `name`. Raises KeyError."""
        for found in self.all_containers:
            if found.name == name:
                return found
        raise KeyError(name)


def pod(
    name: str,
    *containers: Container,
    init: tuple[Container, ...] = (),
    uid: str = "",
    namespace: str = "default",
    restart_policy: str = "Always",
    claims: Mapping[str, str] | None = None,
) -> Pod:
    """A pod in one line. `claims` are the pod's names for ResourceClaims that exist."""
    references = tuple(PodResourceClaim(name=key, resource_claim_name=claim) for key, claim in (claims or {}).items())
    return Pod(ObjectMeta(name, namespace, uid), PodSpec(containers, init, restart_policy, references))


def container(
    name: str,
    limits: Mapping[str, str | int] | None = None,
    *,
    sidecar: bool = False,
    stays: bool = False,
    claims: Iterable[str] = (),
) -> Container:
    """A container that asks for `limits`, as in `container("c", {"example.com/gpu": 1})`.

    `claims` are names of the pod, or `name/request`. An init container that `stays` runs until it is ended.
    """
    parts = (each.partition("/") for each in claims)
    uses = tuple(ResourceClaimUse(name=key, request=request) for key, _, request in parts)
    return Container(name, ResourceRequirements(dict(limits or {}), claims=uses), "Always" if sidecar else "", stays)


def device_request(owner: Pod) -> dict[str, int]:
    """What the pod as a whole needs at one time: what runs together is summed, what runs before is a maximum."""
    init = ((each.is_sidecar, each.limits()) for each in owner.spec.init_containers)
    return peak(init, (each.limits() for each in owner.spec.containers))


def load_pods(path: Path) -> list[Pod]:
    """Read the pods of a YAML file (several documents, or a List). Raises `PodFileError`."""
    try:
        documents = read_documents(path.read_bytes())
    except (OSError, ManifestError) as error:
        raise PodFileError(f"{path}: {error}") from error
    return [decode_pod(document, str(path)) for document in _items(documents)]


def _items(documents: list[Any]) -> Iterator[Any]:
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from document["items"]
        elif document is not None:
            yield document


def decode_pod(document: Any, source: str) -> Pod:
    """A pod from its JSON value, as the API server or a YAML file has it; `source` names it in errors.

    Raises `PodFileError`.
    """
    kind = document.get("kind", "Pod") if isinstance(document, dict) else type(document).__name__
    if kind != "Pod":
        raise PodFileError(f"{source}: kind {kind}, but only pods can be admitted")
    if isinstance(document, dict) and isinstance(status := document.get("status"), dict):
        # what another kubelet observed says nothing here; what the scheduler decided does
        decided = {key: status[key] for key in _DECIDED if key in status}
        document = {**document, "status": decided}
    try:
        found = msgspec.convert(document, Pod)
        for each in found.all_containers:
            each.limits()
    except (msgspec.ValidationError, QuantityError) as error:
        raise PodFileError(f"{source}: {error}") from error
    return found
