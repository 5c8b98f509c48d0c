"""Builders of core/v1 pods for tests, with the defaults of an API server.

One feature is not in the API: an init container that `stays` runs until a test ends it. It is stored as an unknown
member of the container.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kubelet.errors import NodeError
from resourceapi.objects import DecodeError, ObjectMeta, from_dict
from resourceapi.objects.core import Container, Pod, PodResourceClaim, PodSpec

STAYS = "stays"


def pod(
    name: str,
    *containers: Container,
    init: tuple[Container, ...] = (),
    uid: str = "",
    namespace: str = "default",
    restart_policy: str = "Always",
    claims: Mapping[str, str] | None = None,
) -> Pod:
    """Return a pod. `claims` maps the pod's names for claims to the names of existing ResourceClaims."""
    references = tuple(PodResourceClaim(name=key, resource_claim_name=claim) for key, claim in (claims or {}).items())
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid),
        spec=PodSpec(
            containers=containers, init_containers=init, restart_policy=restart_policy, resource_claims=references
        ),
    )


def container(
    name: str,
    limits: Mapping[str, str | float] | None = None,
    *,
    requests: Mapping[str, str | float] | None = None,
    sidecar: bool = False,
    stays: bool = False,
    claims: Iterable[str] = (),
) -> Container:
    """Return a container with `limits`, for example `container("c", {"example.com/gpu": 1})`.

    `claims` are the pod's names for claims, or `name/request`. An init container that `stays` runs until it is ended.
    Raises `NodeError` for an invalid quantity.
    """
    parts = (each.partition("/") for each in claims)
    uses = [{"name": key, "request": request} for key, _, request in parts]
    resources = {"limits": dict(limits or {}), "requests": dict(requests or {}), "claims": uses}
    members: dict[str, Any] = {"name": name, "resources": {key: item for key, item in resources.items() if item}}
    members |= {"restartPolicy": "Always"} if sidecar else {}
    try:
        return from_dict(Container, members | ({STAYS: True} if stays else {}))
    except DecodeError as error:
        raise NodeError(f"container {name}: {error}") from error


def stays(container: Container) -> bool:
    """Return whether an init container runs until a test ends it, instead of succeeding at once."""
    return container.unknown_fields is not None and container.unknown_fields.get(STAYS) is True
