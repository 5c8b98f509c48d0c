"""The cluster as one value: the prototype's objects, pods, nodes, and objects that are referred to as configuration.

Objects are JSON values from the API server, or from YAML and JSON files. Their order is kept, because pools and nodes
are tried in that order.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from controlplane.k8srm.errors import K8srmError
from controlplane.k8srm.types import (
    API_VERSION,
    KINDS,
    DeviceClaim,
    DeviceClass,
    DeviceDriver,
    DevicePool,
    DevicePrivilegedClaim,
    read_as,
)
from resourceapi.manifests import ManifestError, read_documents
from resourceapi.objects import DecodeError, KubernetesObject
from resourceapi.objects import read_as as read_core
from resourceapi.objects.core import Node, Pod


class ObjectName(NamedTuple):
    """The identity of an object of any kind. The namespace is empty for kinds without one."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class ClusterObjects(Struct, frozen=True):
    """Objects by name or `namespace/name`. Objects of other kinds are JSON values."""

    drivers: dict[str, DeviceDriver] = field(default_factory=dict)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    pools: dict[str, DevicePool] = field(default_factory=dict)
    claims: dict[str, DeviceClaim] = field(default_factory=dict)
    privileged_claims: dict[str, DevicePrivilegedClaim] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    others: dict[ObjectName, dict[str, Any]] = field(default_factory=dict)

    @property
    def node_names(self) -> list[str]:
        """The nodes in order. Without node objects, those that pools name."""
        if self.nodes:
            return list(self.nodes)
        return list(dict.fromkeys(pool.spec.node_name for pool in self.pools.values() if pool.spec.node_name))

    @property
    def all_claims(self) -> list[DeviceClaim]:
        """Claims of both kinds."""
        return [*self.claims.values(), *self.privileged_claims.values()]


def cluster_of(values: Iterable[Mapping[str, Any]]) -> ClusterObjects:
    """Return the cluster of these objects; of two with one name, the last counts. Raises K8srmError."""
    cluster = ClusterObjects()
    tables: dict[type[KubernetesObject], dict[str, Any]] = {
        DeviceDriver: cluster.drivers,
        DeviceClass: cluster.classes,
        DevicePool: cluster.pools,
        DeviceClaim: cluster.claims,
        DevicePrivilegedClaim: cluster.privileged_claims,
    }
    for value in values:
        api_version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
        metadata = value.get("metadata")
        if not isinstance(metadata, Mapping):
            metadata = {}  # an object of the known kinds is refused then
        name = ObjectName(api_version, kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        try:
            if api_version == API_VERSION and kind in KINDS:
                obj = read_as(KINDS[kind], value)
                tables[type(obj)][key_of(obj)] = obj
            elif (api_version, kind) == ("v1", "Node"):
                cluster.nodes[name.name] = read_core(Node, value)
            elif (api_version, kind) == ("v1", "Pod"):
                pod = read_core(Pod, value)
                cluster.pods[key_of(pod)] = pod
            else:
                cluster.others[name] = dict(value)
        except DecodeError as error:
            raise K8srmError(f"{name}: {error}") from None
    return cluster


def read_files(paths: Iterable[Path]) -> ClusterObjects:
    """Return the cluster in these YAML or JSON files. Raises K8srmError."""
    return cluster_of(value for path in paths for value in objects_in(path))


def objects_in(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file: documents, items of lists, or a bare YAML list of objects. Raises K8srmError."""
    try:
        documents = read_documents(path.read_bytes())
    except OSError as error:
        raise K8srmError(f"{path}: {error.strerror}") from None
    except ManifestError as error:
        raise K8srmError(f"{path}: {error}") from None
    found: list[dict[str, Any]] = []
    for document in documents:
        for item in document if isinstance(document, list) else [document]:
            is_list = isinstance(item, dict) and isinstance(item.get("items"), list)
            for each in item["items"] if is_list else [item]:
                if isinstance(each, dict):
                    found.append(each)
                elif each is not None:
                    raise K8srmError(f"{path}: not an object: {each}")
    return found


def key_of(obj: KubernetesObject) -> str:
    """Return `namespace/name`, or the name for kinds without a namespace. A missing namespace is `default`."""
    if isinstance(obj, DeviceClaim | Pod):
        return f"{obj.metadata.namespace or 'default'}/{obj.metadata.name}"
    return obj.metadata.name
