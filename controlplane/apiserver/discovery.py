"""Discovery documents: groups, versions and resources that are served; plain and aggregated (allocator.md 5.2)."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from controlplane.apiserver.access.reviews import REVIEWS, Unstored
from controlplane.apiserver.kinds import Kind, Plain, Registry
from controlplane.apiserver.preconditions import NAMESPACES
from resourceapi.objects.release import Release

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERBS_OF_DEFINITIONS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
STATUS_VERBS = ["get", "patch", "update"]
PART_VERBS = {"finalize": ["update"]}
"""The verbs of parts that have fewer than others."""
_PROXY_VERBS = ["create", "delete", "get", "patch", "update"]
_STREAM_VERBS = ["create", "get"]
_ORDER = (
    *("", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io"),
    *("autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io"),
    *("storage.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io"),
    *("coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io"),
    "storagemigration.k8s.io",
)
"""The built-in groups by priority."""


_OF_CORE = (Unstored("bindings", "Binding", is_namespaced=True),)


class _Part(NamedTuple):
    """A subresource, its verbs, and the kind of its objects; group and version are set if they are others."""

    name: str
    kind: str
    verbs: list[str]
    group: str = ""
    version: str = ""


_MORE_PARTS: Mapping[str, tuple[_Part, ...]] = {
    "nodes": (_Part("proxy", "NodeProxyOptions", _PROXY_VERBS),),
    "pods": (
        _Part("attach", "PodAttachOptions", _STREAM_VERBS),
        _Part("binding", "Binding", ["create"]),
        _Part("eviction", "Eviction", ["create"], "policy", "v1"),
        _Part("exec", "PodExecOptions", _STREAM_VERBS),
        _Part("log", "Pod", ["get"]),
        _Part("portforward", "PodPortForwardOptions", _STREAM_VERBS),
        _Part("proxy", "PodProxyOptions", _PROXY_VERBS),
    ),
    "serviceaccounts": (_Part("token", "TokenRequest", ["create"], "authentication.k8s.io", "v1"),),
    "services": (_Part("proxy", "ServiceProxyOptions", _PROXY_VERBS),),
}
"""Kind -> subresources that are no part of an object."""


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
    resources += [
        {
            "name": each.plural,
            "singularName": each.kind.lower(),
            "namespaced": each.is_namespaced,
            "kind": each.kind,
            "verbs": ["create"],
        }
        for each in _unstored(name, version)
    ]
    resources.sort(key=lambda each: str(each["name"]))
    api_version = f"{name}/{version}" if name else version
    api = {"apiVersion": "v1"} if name else {}  # a real server leaves it out for the core group
    return {"kind": "APIResourceList", **api, "groupVersion": api_version, "resources": resources}


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
    """Each group with its versions, in the order of a real server: by priority, those of definitions by name."""
    groups = registry.groups() | {name: tuple(versions) for name, versions in REVIEWS.items()}
    ranks = {name: rank for rank, name in enumerate(_ORDER)}
    return {name: groups[name] for name in sorted(groups, key=lambda name: (ranks.get(name, len(ranks)), name))}


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
    for part in _parts(kind):
        below: Plain = {"name": f"{kind.plural}/{part.name}", "singularName": "", "namespaced": kind.namespaced}
        if part.group:
            below |= {"group": part.group, "version": part.version}
        found.append({**below, "kind": part.kind, "verbs": part.verbs})
    return found


def _aggregated_resources(registry: Registry, name: str, version: str) -> list[Plain]:
    resources = []
    for kind in sorted(registry, key=lambda kind: kind.plural):
        if kind.group != name or not kind.served(version):
            continue
        # as a real server has it, built-in kinds leave out a group and version that are those of the document
        group_version = (kind.group, version) if kind.from_definition else ("", "")
        resource: Plain = {
            "resource": kind.plural,
            "responseKind": _response_kind(kind.kind, *group_version),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": kind.singular_name,
            "verbs": _verbs(kind),
        }
        if kind.short_names:
            resource["shortNames"] = list(kind.short_names)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        subresources = [
            {
                "subresource": part.name,
                "responseKind": _response_kind(
                    part.kind, *((part.group, part.version) if part.group else group_version)
                ),
                "verbs": part.verbs,
            }
            for part in _parts(kind)
        ]
        if subresources:
            resource["subresources"] = subresources
        resources.append(resource)
    resources += [
        {
            "resource": each.plural,
            "responseKind": _response_kind(each.kind, "", ""),
            "scope": "Namespaced" if each.is_namespaced else "Cluster",
            "singularResource": each.kind.lower(),
            "verbs": ["create"],
        }
        for each in _unstored(name, version)
    ]
    return sorted(resources, key=lambda each: str(each["resource"]))


def _response_kind(kind: str, group: str, version: str) -> Plain:
    return {"group": group, "version": version, "kind": kind}


def _unstored(group: str, version: str) -> tuple[Unstored, ...]:
    """The resources whose objects are not stored: reviews, and core's bindings."""
    return _OF_CORE if (group, version) == ("", "v1") else REVIEWS.get(group, {}).get(version, ())


def _parts(kind: Kind) -> list[_Part]:
    """The subresources of a kind: of a built-in one in the order of their names."""
    own = [_Part(name, kind.kind, PART_VERBS.get(name, STATUS_VERBS)) for name in kind.parts]
    if kind.versions[0].scale:
        own.append(_Part("scale", "Scale", STATUS_VERBS, "autoscaling", "v1"))
    return own if kind.from_definition else sorted((*own, *_MORE_PARTS.get(kind.id, ())))


def _storage_hash(kind: Kind) -> str:
    text = f"{kind.hashed_as or f'{kind.group}/{kind.storage}'}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _verbs(kind: Kind) -> list[str]:
    """The verbs of a built-in kind: namespaces cannot be deleted as a collection."""
    return [each for each in VERBS if each != "deletecollection" or kind.id != NAMESPACES]
