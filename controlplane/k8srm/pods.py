"""A pod's claims: by reference, made from a template, or inline in the pod.

`spec.deviceClaims` lists them like volumes; `containers[].devices` refers to entries by name. An API server that
refuses these fields, as a real one does, can store the same list as YAML in an annotation. A template is an ordinary
claim, of which a copy is made for the pod. A claim that is made for a pod is named after pod and entry, and the pod
owns it. Source: allocator specification 6.2, the prototype's example pods.
"""

from msgspec import Struct

from controlplane.k8srm.errors import K8srmError
from controlplane.k8srm.load import ClusterObjects, key_of
from controlplane.k8srm.types import (
    GROUP,
    DeviceClaim,
    DeviceClaimSpec,
    DevicePrivilegedClaim,
    PodDeviceClaim,
    check_spec,
)
from resourceapi.manifests import ManifestError, read_yaml
from resourceapi.objects import DecodeError, ObjectMeta, OwnerReference, from_dict
from resourceapi.objects.core import Container, Pod

DEVICE_CLAIMS_ANNOTATION = f"{GROUP}/device-claims"


class PodClaim(Struct, frozen=True):
    """A claim that a pod uses. A new one has to be created first."""

    claim: DeviceClaim
    is_new: bool = False


def claims_of_pod(pod: Pod, cluster: ClusterObjects) -> list[PodClaim]:
    """Return the claims of a pod in order, each once. Raises K8srmError."""
    entries = _entries(pod)
    names = {entry.name for entry in entries}
    for container in pod.all_containers:
        for used in _used_claim_names(container):
            if used not in names:
                raise K8srmError(
                    f"{_pod_label(pod)}: container {container.name} uses device claim {used}: no such entry"
                )
    found: dict[tuple[str, str], PodClaim] = {}
    for entry in entries:
        used_claim = _claim_for(entry, pod, cluster)
        try:
            check_spec(used_claim.claim.spec, "spec")
        except DecodeError as error:
            raise K8srmError(f"{used_claim.claim.KIND} {key_of(used_claim.claim)}: {error}") from None
        found.setdefault((used_claim.claim.KIND, used_claim.claim.metadata.name), used_claim)
    return list(found.values())


def _entries(pod: Pod) -> list[PodDeviceClaim]:
    where, listed = (
        "spec.deviceClaims",
        pod.spec.unknown_fields.get("deviceClaims") if pod.spec.unknown_fields else None,
    )
    if listed is None and DEVICE_CLAIMS_ANNOTATION in pod.metadata.annotations:
        where = f"annotation {DEVICE_CLAIMS_ANNOTATION}"
        try:
            listed = read_yaml(pod.metadata.annotations[DEVICE_CLAIMS_ANNOTATION])
        except ManifestError as error:
            raise K8srmError(f"{_pod_label(pod)}: {where}: {error}") from None
    if not isinstance(listed, list | None):
        raise K8srmError(f"{_pod_label(pod)}: {where}: must be a list")
    try:
        return [from_dict(PodDeviceClaim, value, "v1alpha1") for value in listed or []]
    except DecodeError as error:
        raise K8srmError(f"{_pod_label(pod)}: {where}: {error}") from None


def _used_claim_names(container: Container) -> list[str]:
    devices = container.unknown_fields.get("devices") if container.unknown_fields else None
    return [str(device.get("name", "")) for device in devices or [] if isinstance(device, dict)]


def _claim_for(entry: PodDeviceClaim, pod: Pod, cluster: ClusterObjects) -> PodClaim:
    where = f"{_pod_label(pod)}, device claim {entry.name}"
    namespace = pod.metadata.namespace or "default"
    sources = (entry.claim_name, entry.privileged_claim_name, entry.claim_template_name, entry.claim)
    if sum(source is not None for source in sources) != 1:
        raise K8srmError(f"{where}: needs exactly one of claimName, privilegedClaimName, claimTemplateName, claim")
    if entry.privileged_claim_name is not None:
        privileged = cluster.privileged_claims.get(f"{namespace}/{entry.privileged_claim_name}")
        if privileged is None:
            raise K8srmError(f"{where}: {DevicePrivilegedClaim.KIND} {entry.privileged_claim_name} not found")
        return PodClaim(privileged)
    named = entry.claim_name or entry.claim_template_name
    claim = cluster.claims.get(f"{namespace}/{named}") if named else None
    if named and claim is None:
        raise K8srmError(f"{where}: {DeviceClaim.KIND} {named} not found")
    if claim is not None and entry.claim_name:
        return PodClaim(claim)
    spec = entry.claim if claim is None else claim.spec
    assert spec is not None, "one of the sources is there"
    return _claim_made_for(pod, entry, spec, cluster)


def _claim_made_for(pod: Pod, entry: PodDeviceClaim, spec: DeviceClaimSpec, cluster: ClusterObjects) -> PodClaim:
    """The claim that was made for an entry before, or a new one."""
    namespace, name = pod.metadata.namespace or "default", f"{pod.metadata.name}-{entry.name}"
    existing = cluster.claims.get(f"{namespace}/{name}")
    if existing is not None:
        if not any(owner.uid == pod.metadata.uid for owner in existing.metadata.owner_references):
            raise K8srmError(f"{_pod_label(pod)}: DeviceClaim {name} exists, but was not made for the pod; rename one")
        return PodClaim(existing)
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    metadata = ObjectMeta(name=name, namespace=namespace, owner_references=(owner,))
    return PodClaim(DeviceClaim(metadata=metadata, spec=spec), is_new=True)


def _pod_label(pod: Pod) -> str:
    return f"pod {pod.metadata.namespace or 'default'}/{pod.metadata.name}"
