"""Manifests of claims, templates and pods that use them."""

from typing import Any

from tests.e2e.realnode import pod

RESOURCE_API = "resource.k8s.io/v1"


def request(device_class: str, name: str = "device", **exactly: Any) -> dict[str, Any]:
    """One request for devices of a class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def claim(name: str, *requests: dict[str, Any], config: list[dict[str, Any]] | None = None, **meta: Any) -> Any:
    """A claim in the namespace `default`, or in the one of `meta`."""
    devices: dict[str, Any] = {"requests": list(requests)}
    if config:
        devices["config"] = config
    metadata = {"name": name, "namespace": "default", **meta}
    return {"apiVersion": RESOURCE_API, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}


def template(name: str, *requests: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A template that creates such a claim for each pod."""
    made = claim(name, *requests, **options)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def claiming(
    name: str,
    command: str,
    *,
    claims: dict[str, str] | None = None,
    templates: dict[str, str] | None = None,
    uid: int | None = None,
    namespace: str = "default",
    tolerant: bool = False,
) -> dict[str, Any]:
    """A pod whose container uses claims and templates, by the pod's names for them."""
    made = pod(name, command, uid=uid)
    made["metadata"]["namespace"] = namespace
    references = [{"name": x, "resourceClaimName": y} for x, y in (claims or {}).items()]
    references += [{"name": x, "resourceClaimTemplateName": y} for x, y in (templates or {}).items()]
    made["spec"]["resourceClaims"] = references
    (container,) = made["spec"]["containers"]
    container.setdefault("resources", {})["claims"] = [{"name": each["name"]} for each in references]
    if tolerant:
        made["spec"]["tolerations"] = [{"operator": "Exists"}]
    return made


def driver_config(parameters: dict[str, Any], driver: str, requests: list[str] | None = None) -> dict[str, Any]:
    """Opaque configuration for a driver."""
    return {"requests": requests or [], "opaque": {"driver": driver, "parameters": parameters}}
