"""Random requests: most are typical of clients, some contain random values anywhere."""

import copy
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.controlplane.apiserver.definitions.test_definitions import definition, driver
from tests.controlplane.apiserver.running import APPLY, MERGE, Plain, claim, device_class

JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
NAMES = ("a", "b", "c", "d")
NAMESPACES = ("default", "work")
_CONTENT_TYPES = ("application/json", "application/yaml", MERGE, APPLY, JSON_PATCH, STRATEGIC)
_MEMBER_NAMES = (
    *("metadata", "spec", "status", "name", "labels", "finalizers", "managedFields", "ownerReferences", "selectors"),
    *("devices", "requests", "exactly", "kind", "apiVersion", "$patch", "$setElementOrder/finalizers", "", "x"),
    *("versions", "names", "schema", "openAPIV3Schema", "properties", "type", "items", "uid", "resourceVersion"),
)
_TEXTS = ("", "x", "gpu", "resource.k8s.io/v1", "v1", "DeviceClass", "object", "delete", "replace", "\0", "ä", "1", "(")


class Collection(NamedTuple):
    """The objects of a kind. `versions` are all versions that serve it; the first is the default."""

    group: str
    versions: tuple[str, ...]
    plural: str
    is_namespaced: bool = False
    has_status: bool = False
    has_scale: bool = False

    def path(self, version: str, namespace: str = "") -> str:
        """The path of the objects in a version, in one namespace or, without it, in all."""
        base = f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"
        return f"{base}/namespaces/{namespace}/{self.plural}" if namespace else f"{base}/{self.plural}"

    @property
    def path_in_all_namespaces(self) -> str:
        """The path of all objects in the default version."""
        return self.path(self.versions[0])


_TYPED = ("v1", "v1beta2", "v1beta1")
CLASSES = Collection("resource.k8s.io", _TYPED, "deviceclasses")
CLAIMS = Collection("resource.k8s.io", _TYPED, "resourceclaims", is_namespaced=True, has_status=True)
TEMPLATES = Collection("resource.k8s.io", _TYPED, "resourceclaimtemplates", is_namespaced=True)
SLICES = Collection("resource.k8s.io", _TYPED, "resourceslices")
MAPS = Collection("", ("v1",), "configmaps", is_namespaced=True)
PODS = Collection("", ("v1",), "pods", is_namespaced=True, has_status=True)
NAMESPACE_OBJECTS = Collection("", ("v1",), "namespaces")
CUSTOM_DEFINITIONS = Collection("apiextensions.k8s.io", ("v1",), "customresourcedefinitions", has_status=True)
DRIVERS = Collection("example.com", ("v1alpha1",), "drivers", is_namespaced=True, has_status=True)
POOLS = Collection("devmgmtproto.k8s.io", ("v1alpha1",), "devicepools", has_status=True)
NODES = Collection("", ("v1",), "nodes", has_status=True)
SECRETS = Collection("", ("v1",), "secrets", is_namespaced=True)
ACCOUNTS = Collection("", ("v1",), "serviceaccounts", is_namespaced=True)
LEASES = Collection("coordination.k8s.io", ("v1",), "leases", is_namespaced=True)
ROLES = Collection("rbac.authorization.k8s.io", ("v1",), "clusterroles")
STORAGE = Collection("storage.k8s.io", ("v1",), "storageclasses")
DAEMONS = Collection("apps", ("v1",), "daemonsets", is_namespaced=True, has_status=True)
ALWAYS_SERVED = (CLASSES, CLAIMS, TEMPLATES, SLICES, MAPS, PODS, NAMESPACE_OBJECTS, CUSTOM_DEFINITIONS, POOLS)
"""The kinds that are served at all times."""
_WEIGHTED_COLLECTIONS = (CLASSES, CLAIMS, SLICES, DRIVERS) * 3 + (*ALWAYS_SERVED, DRIVERS)


class Request(NamedTuple):
    """One request."""

    method: str
    path: str
    body: Any = None
    content: str = "application/json"
    query: Mapping[str, str] = MappingProxyType({})


class Requests:
    """Creates requests. `record` keeps objects, which later requests change, own and delete."""

    def __init__(self, seed: int, weighted: Sequence[Collection] = _WEIGHTED_COLLECTIONS) -> None:
        self._choose, self._collections = random.Random(seed), weighted
        self._seen: list[Plain] = []

    def record(self, value: Any) -> None:
        """Record an answer, which can contain an object."""
        if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and value["metadata"].get("uid"):
            self._seen.append(value)
            del self._seen[:-50]

    def next(self) -> Request:
        """The next request."""
        choose = self._choose
        collection = choose.choice(self._collections)
        version = choose.choice(collection.versions)
        namespace = choose.choice(NAMESPACES) if collection.is_namespaced else ""
        path = collection.path(version, namespace)
        roll = choose.random()
        if roll < 0.30:
            return self._possibly_corrupted(
                Request("POST", path, self._object(collection, version), query=self._write_query())
            )
        if roll < 0.40:
            return Request(
                "DELETE", f"{path}/{self._name(collection)}", self._delete_options(), query=self._dry_run_query()
            )
        if roll < 0.50:
            return Request("GET", choose.choice([path, collection.path(version)]), query=self._list_query())
        if roll < 0.55:
            return Request("GET", f"{path}/{self._name(collection)}")
        if roll < 0.565:
            return Request("DELETE", path, self._delete_options(), query=self._list_query())
        if roll < 0.60:
            body = choose.choice([self.value(), [self.value()], b"{", b"- a\n- [", None])
            return Request(
                choose.choice(("POST", "PUT", "PATCH", "DELETE")),
                choose.choice([path, f"{path}/{choose.choice(NAMES)}", f"{path}/{choose.choice(NAMES)}/status"]),
                body,
                choose.choice(_CONTENT_TYPES),
                {"fieldManager": "m"},
            )
        return self._possibly_corrupted(self._change(collection, version, path))

    def _change(self, collection: Collection, version: str, path: str) -> Request:
        """A PUT or PATCH with an earlier state of an object, or with random content."""
        choose = self._choose
        if collection.has_scale and choose.random() < 0.15:
            return self._scale(f"{path}/{self._name(collection)}/scale")
        mine = [each for each in self._seen if _belongs_to(each, collection, version)]
        below = "/status" if collection.has_status and choose.random() < 0.4 else ""
        if mine and choose.random() < 0.5:
            old = copy.deepcopy(choose.choice(mine))
            metadata = old["metadata"]
            if choose.random() < 0.5:
                metadata.pop("resourceVersion", None)
            metadata["labels"] = self._labels()
            where = collection.path(version, metadata.get("namespace", ""))
            if choose.random() < 0.5:
                old["metadata"]["finalizers"] = choose.choice(([], ["example.com/hold"]))
            return Request("PUT", f"{where}/{metadata['name']}{below}", old, query=self._write_query())
        content = choose.choice((MERGE, JSON_PATCH, STRATEGIC, APPLY, APPLY))
        name = self._name(collection)
        query = self._write_query()
        body: Any = {"metadata": {"labels": self._labels(), "finalizers": choose.choice([None, ["example.com/hold"]])}}
        if content == JSON_PATCH:
            body = [{"op": choose.choice(("add", "test", "remove")), "path": "/metadata/labels", "value": {"x": "1"}}]
        elif content == APPLY:
            body = self._object(collection, version)
            body["metadata"] = {"name": name, "labels": self._labels()}
            query |= {"fieldManager": choose.choice(("m", "n")), "force": choose.choice(("true", "false"))}
        elif below:
            body = {"status": self._status(collection)}
        return Request("PATCH", f"{path}/{name}{below}", body, content, query)

    def _scale(self, path: str) -> Request:
        """A write to the scale subresource."""
        choose = self._choose
        spec = {"spec": {"replicas": choose.randrange(-1, 3)}}
        if choose.random() < 0.3:
            return Request("GET", path)
        if choose.random() < 0.5:
            return Request("PATCH", path, spec, MERGE, self._write_query())
        name = choose.choice((path.split("/")[-2], "other"))
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}} | spec
        return Request("PUT", path, scale, query=self._write_query())

    def _object(self, collection: Collection, version: str) -> Plain:
        choose = self._choose
        name = self._name(collection)
        metadata: Plain = {"name": name, "labels": self._labels()}
        if choose.random() < 0.1 and collection not in (CUSTOM_DEFINITIONS, NAMESPACE_OBJECTS):
            metadata = {"generateName": f"{name}-"}
        if choose.random() < 0.3 and self._seen:
            owner = choose.choice(self._seen)
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
            reference |= {"uid": owner["metadata"]["uid"], "blockOwnerDeletion": choose.random() < 0.5}
            metadata["ownerReferences"] = [reference]
        if choose.random() < 0.1:
            metadata["finalizers"] = ["example.com/hold"]
        made: dict[str, Plain] = {
            "deviceclasses": device_class(),
            "resourceclaims": claim(),
            "resourceclaimtemplates": {"kind": "ResourceClaimTemplate", "spec": {"spec": claim()["spec"]}},
            "resourceslices": {"kind": "ResourceSlice", "spec": _slice(choose.choice(NAMES))},
            "configmaps": {"kind": "ConfigMap", "data": {"a": choose.choice(_TEXTS)}},
            "pods": {"kind": "Pod", "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "namespaces": {"kind": "Namespace"},
            "customresourcedefinitions": definition(),
            "drivers": driver("a", {"type": choose.choice(_TEXTS), "n": choose.randrange(3)}),
            "devicepools": {"kind": "DevicePool", "spec": {"driver": "d", "devices": [{"name": "a"}]}},
            "nodes": {"kind": "Node", "spec": {"unschedulable": True}},
            "secrets": {"kind": "Secret", "data": {"a": "eA=="}, "type": "Opaque"},
            "serviceaccounts": {"kind": "ServiceAccount", "automountServiceAccountToken": False},
            "leases": {"kind": "Lease", "spec": {"holderIdentity": choose.choice(NAMES), "leaseDurationSeconds": 40}},
            "clusterroles": {"kind": "ClusterRole", "rules": [{"apiGroups": [""], "resources": ["x"], "verbs": ["*"]}]},
            "storageclasses": {"kind": "StorageClass", "provisioner": "d.example.com"},
            "daemonsets": {"kind": "DaemonSet", "spec": _daemon_set()},
        }
        obj = copy.deepcopy(made[collection.plural])
        if version == "v1beta1" and collection.plural.startswith("resourceclaim"):
            spec = obj["spec"]["spec"] if collection is TEMPLATES else obj["spec"]
            spec["devices"]["requests"] = [{"name": "gpu", "deviceClassName": "gpu"}]
        if version == "v1beta1" and collection is SLICES:
            obj["spec"]["devices"] = [{"name": each["name"], "basic": {}} for each in obj["spec"]["devices"]]
        if collection is CUSTOM_DEFINITIONS and choose.random() < 0.5:
            self._corrupt(obj["spec"]["versions"][0]["schema"])
        return obj | {
            "apiVersion": f"{collection.group}/{version}" if collection.group else version,
            "metadata": metadata,
        }

    def _status(self, collection: Collection) -> Any:
        result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
        if collection is CLAIMS:
            return self._choose.choice([None, {"allocation": {"devices": {"results": [result]}}}])
        return self._choose.choice([None, {"x": 1, "phase": "Running"}, self.value()])

    def _name(self, collection: Collection) -> str:
        if collection is CUSTOM_DEFINITIONS:
            return self._choose.choice(("drivers.example.com", "drivers.example.com", "deviceclasses.resource.k8s.io"))
        if collection is NAMESPACE_OBJECTS:
            return self._choose.choice(("work", "work", "other"))
        return self._choose.choice(NAMES)

    def _labels(self) -> Any:
        return self._choose.choice([{}, None, {"x": self._choose.choice(("1", "2"))}])

    def _dry_run_query(self) -> dict[str, str]:
        return {"dryRun": "All"} if self._choose.random() < 0.1 else {}

    def _write_query(self) -> dict[str, str]:
        query = self._dry_run_query()
        if self._choose.random() < 0.3:
            query["fieldValidation"] = self._choose.choice(("Strict", "Warn", "Ignore", "No"))
        if self._choose.random() < 0.3:
            query["fieldManager"] = self._choose.choice(("m", "n"))
        return query

    def _list_query(self) -> dict[str, str]:
        choose, query = self._choose, {}
        if choose.random() < 0.5:
            query["labelSelector"] = choose.choice(("x", "!x", "x=1", "x in (1,2)", "x notin (1)", "((", "x>1"))
        if choose.random() < 0.2:
            query["fieldSelector"] = choose.choice(("metadata.name=a", "metadata.name!=a", "spec.driver=d", "x"))
        if choose.random() < 0.3:
            query["limit"] = str(choose.randrange(-1, 4))
        if choose.random() < 0.2:
            query["resourceVersion"] = choose.choice(["0", "1", "x", *self._versions()])
            query["resourceVersionMatch"] = choose.choice(("Exact", "NotOlderThan", "No"))
        return query

    def _versions(self) -> list[str]:
        return [each["metadata"]["resourceVersion"] for each in self._seen if "resourceVersion" in each["metadata"]]

    def _delete_options(self) -> Any:
        choose = self._choose
        options: Plain = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if choose.random() < 0.5:
            options["propagationPolicy"] = choose.choice(("Foreground", "Background", "Orphan", "No"))
        if choose.random() < 0.1 and self._seen:
            options["preconditions"] = {"uid": choose.choice(self._seen)["metadata"]["uid"]}
        return choose.choice([None, options])

    def _possibly_corrupted(self, request: Request) -> Request:
        """The request, with a random fault in one of four cases."""
        if self._choose.random() < 0.75 or request.body is None:
            return request
        body = copy.deepcopy(request.body)
        self._corrupt(body)
        return request._replace(body=body)

    def _corrupt(self, value: Any) -> None:
        """Put a random value at a random position."""
        choose = self._choose
        while True:
            if isinstance(value, dict):
                key: Any = choose.choice([*value, choose.choice(_MEMBER_NAMES)])
            elif isinstance(value, list) and value:
                key = choose.randrange(len(value))
            else:
                return
            below = value[key] if isinstance(value, list) else value.get(key)
            if not isinstance(below, dict | list) or not below or choose.random() < 0.3:
                value[key] = self.value()
                return
            value = below

    def value(self, depth: int = 4) -> Any:
        """Any JSON value."""
        choose = self._choose
        kind = choose.randrange(8 if depth else 5)
        if kind < 5:
            return choose.choice([None, True, choose.choice(_TEXTS), choose.randrange(-3, 2**40), 1.5])
        if kind == 5:
            return [self.value(depth - 1) for _ in range(choose.randrange(3))]
        return {choose.choice(_MEMBER_NAMES): self.value(depth - 1) for _ in range(choose.randrange(4))}


def _belongs_to(obj: Plain, collection: Collection, version: str) -> bool:
    wanted = f"{collection.group}/{version}" if collection.group else version
    return bool(obj.get("apiVersion") == wanted and f"{obj.get('kind', '').lower()}" == _singular(collection.plural))


def _singular(plural: str) -> str:
    return plural.removesuffix("es") if plural.endswith("sses") else plural.removesuffix("s")


def _daemon_set() -> Plain:
    pod = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"selector": {"matchLabels": {"app": "a"}}, "template": pod}


def _slice(pool: str) -> Plain:
    devices = [
        {"name": "gpu-0", "attributes": {"model": {"string": "a100"}}, "capacity": {"memory": {"value": "80Gi"}}}
    ]
    pools = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    return {"driver": "gpu.example.com", "nodeName": "node1", "pool": pools, "devices": devices}
