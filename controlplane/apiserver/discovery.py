"""Discovery documents: groups, versions and resources that are served; plain and aggregated (allocator.md 5.2)."""

import base64
import hashlib
from typing import Any

import msgspec

from controlplane.apiserver.access.reviews import REVIEWS
from controlplane.apiserver.kinds import Kind, Plain, Registry
from controlplane.apiserver.preconditions import NAMESPACES
from resourceapi.objects.release import Release

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERBS_OF_DEFINITIONS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
STATUS_VERBS = ["get", "patch", "update"]


def version_info(release: Release) -> Plain:
    """Return the document of /version, from which clients choose their behaviour."""
    return {
        "major": "1",
        "minor": str(release.minor),
        "emulationMajor": "1",
        "emulationMinor": str(release.minor),
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(release.minor - 1),
        "gitVersion": f"v{release.version}.{release.patch}",
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.8",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def api_versions(address: str) -> Plain:
    """Return the document of /api."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def group_list(registry: Registry) -> Plain:
    """Return the document of /apis."""
    groups = [_group_entry(group, versions) for group, versions in _groups(registry).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Plain | None:
    """Return the document of a group; None if it is not served."""
    versions = _groups(registry).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group_entry(name, versions) if name and versions else None


def resource_list(registry: Registry, name: str, version: str) -> Plain | None:
    """Return the document of a group's version; None if it is not served."""
    if version not in _groups(registry).get(name, ()):
        return None
    resources: list[Plain] = []
    for kind in sorted(registry, key=lambda kind: kind.plural):
        if kind.group == name and kind.served(version):
            resources.extend(_resources(kind))
    for plural, one in REVIEWS.get(name, {}).get(version, ()):
        resources.append(
            {"name": plural, "singularName": one.lower(), "namespaced": False, "kind": one, "verbs": ["create"]}
        )
    api_version = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def aggregated(registry: Registry, *, core: bool) -> Plain:
    """Return the APIGroupDiscoveryList of /api (`core`) or /apis."""
    items = []
    for name, versions in _groups(registry).items():
        if bool(name) == core:
            continue
        served = [
            {"version": each, "resources": _aggregated_resources(registry, name, each), "freshness": "Current"}
            for each in versions
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": served})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def etag(document: Any) -> str:
    """Return the tag of a document. Equal documents have equal tags."""
    return f'"{hashlib.sha512(msgspec.json.encode(document)).hexdigest().upper()}"'


def paths(registry: Registry) -> list[str]:
    """Return the paths that the root of a server lists."""
    found = ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
    for name, versions in _groups(registry).items():
        root = f"/apis/{name}" if name else "/api"
        found += [*([root] if name else []), *(f"{root}/{version}" for version in versions)]
    return sorted(found)


def is_served(registry: Registry, name: str, version: str = "") -> bool:
    """Return whether a group, or a version of it, has resources."""
    versions = _groups(registry).get(name, ())
    return version in versions if version else bool(versions)


def _groups(registry: Registry) -> dict[str, tuple[str, ...]]:
    return registry.groups() | {name: tuple(versions) for name, versions in REVIEWS.items()}


def _group_entry(name: str, versions: tuple[str, ...]) -> Plain:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resources(kind: Kind) -> list[Plain]:
    resource: Plain = {
        "name": kind.plural,
        "singularName": kind.singular_name,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS_OF_DEFINITIONS if kind.from_definition else _verbs(kind),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    resource["storageVersionHash"] = _storage_hash(kind)
    found = [resource]
    below: Plain = {"singularName": "", "namespaced": kind.namespaced}
    found += [{"name": f"{kind.plural}/{x}", **below, "kind": kind.kind, "verbs": STATUS_VERBS} for x in kind.parts]
    if kind.versions[0].scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": STATUS_VERBS}
        # built-in subresources are in the order of their names
        found.insert(len(found) if kind.from_definition else 1, {"name": f"{kind.plural}/scale", **below, **scale})
    if kind.id == "pods":
        binding = {
            "name": "pods/binding",
            "singularName": "",
            "namespaced": True,
            "kind": "Binding",
            "verbs": ["create"],
        }
        eviction = {**binding, "name": "pods/eviction", "group": "policy", "version": "v1", "kind": "Eviction"}
        found[1:] = sorted([binding, eviction, *found[1:]], key=lambda each: str(each["name"]))
    return found


def _aggregated_resources(registry: Registry, name: str, version: str) -> list[Plain]:
    resources = []
    for kind in sorted(registry, key=lambda kind: kind.plural):
        if kind.group != name or not kind.served(version):
            continue
        response = {"group": kind.group, "version": version, "kind": kind.kind}
        resource: Plain = {
            "resource": kind.plural,
            "responseKind": response,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": kind.singular_name,
            "verbs": _verbs(kind),
        }
        if kind.short_names:
            resource["shortNames"] = list(kind.short_names)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        subresources = []
        if kind.id == "pods":
            binding = {"group": "", "version": "v1", "kind": "Binding"}
            subresources.append({"subresource": "binding", "responseKind": binding, "verbs": ["create"]})
            eviction = {"group": "policy", "version": "v1", "kind": "Eviction"}
            subresources.append({"subresource": "eviction", "responseKind": eviction, "verbs": ["create"]})
        subresources += [{"subresource": part, "responseKind": response, "verbs": STATUS_VERBS} for part in kind.parts]
        if kind.id == "pods":
            subresources.sort(key=lambda each: str(each["subresource"]))
        if kind.versions[0].scale:
            scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
            at = len(subresources) if kind.from_definition else 0
            subresources.insert(at, {"subresource": "scale", "responseKind": scale, "verbs": STATUS_VERBS})
        if subresources:
            resource["subresources"] = subresources
        resources.append(resource)
    for plural, one in REVIEWS.get(name, {}).get(version, ()):
        response = {"group": name, "version": version, "kind": one}
        resources.append(
            {
                "resource": plural,
                "responseKind": response,
                "scope": "Cluster",
                "singularResource": one.lower(),
                "verbs": ["create"],
            }
        )
    return resources


def _storage_hash(kind: Kind) -> str:
    text = f"{kind.group}/{kind.storage}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _verbs(kind: Kind) -> list[str]:
    """The verbs of a built-in kind: namespaces cannot be deleted as a collection."""
    return [each for each in VERBS if each != "deletecollection" or kind.id != NAMESPACES]
