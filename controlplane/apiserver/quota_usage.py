"""What an object uses of a namespace's quotas, by the names of quota resources.

Source: kubernetes.io "Resource Quotas"; k8s.io/kubernetes pkg/quota/v1/evaluator/core, k8s.io/apiserver
pkg/quota/v1/generic. The progress of a pod's resize on the kubelet is ignored.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.grace import PODS
from controlplane.apiserver.pods.resources import Amounts, amounts_of_pod
from controlplane.apiserver.rules.resource_rules import HUGE_PAGES, quantity
from controlplane.apiserver.service_addresses import SERVICES
from controlplane.apiserver.store import Store
from resourceapi.objects import Quantity, v1
from resourceapi.objects.names import REQUESTS_PREFIX, is_extended_resource, is_native_resource

CLAIMS, VOLUME_CLAIMS = f"resourceclaims.{v1.GROUP}", "persistentvolumeclaims"
_CLASSES = f"deviceclasses.{v1.GROUP}"
_OLD_NAMES = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
_EVENTS = ("events", "events.events.k8s.io")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = {
    *("count/pods", "pods"),
    *_COMPUTE,
    *(f"{which}.{name}" for which in ("requests", "limits") for name in _COMPUTE),
}
_OF_SERVICES = {"count/services", "services", "services.nodeports", "services.loadbalancers"}
_OF_VOLUMES = ("persistentvolumeclaims", "requests.storage")
_BY_STORAGE = ".storageclass.storage.k8s.io/"
_BY_DEVICES = ".deviceclass.resource.k8s.io/devices"
_MAX_DEVICES = 32
"""The most devices that a claim with mode All can get."""
_PLAIN = ("cpu", "memory")
_REQUIRED_AMOUNTS = {*_PLAIN, *(f"{which}.{name}" for which in ("requests", "limits") for name in _PLAIN)}
_ONE = Quantity.of(1)
_ZERO = Quantity.of(0)


def is_counted(kind_id: str) -> bool:
    """Return whether quotas can count objects of a namespaced kind."""
    return kind_id not in _EVENTS


class Usage:
    """Measures objects, using others of the store. `has_extended`: device classes can provide extended resources."""

    def __init__(self, store: Store, clock: Callable[[], datetime], *, has_extended: bool) -> None:
        self._store, self._clock, self._has_extended = store, clock, has_extended

    def names(self, kind_id: str, hard: Collection[str]) -> set[str]:
        """Return the quota resources in `hard` for which objects of a kind count."""
        if kind_id == PODS:
            return {name for name in hard if name in _OF_PODS or _is_huge(name) or _is_extended(name)}
        if kind_id == SERVICES:
            return _OF_SERVICES & {*hard}
        if kind_id == VOLUME_CLAIMS:
            by_class = tuple(f"{_BY_STORAGE}{name}" for name in _OF_VOLUMES)
            return {n for n in hard if n == f"count/{VOLUME_CLAIMS}" or n in _OF_VOLUMES or n.endswith(by_class)}
        if kind_id == CLAIMS:
            known = self._extended_resources() if any(map(_is_extended, hard)) else set()
            return {
                n for n in hard if n == f"count/{CLAIMS}" or n.endswith(_BY_DEVICES) or _requested_resource(n) in known
            }
        return {f"count/{kind_id}", *([kind_id] if kind_id in _OLD_NAMES else [])} & {*hard}

    def of(self, kind_id: str, obj: Plain) -> Amounts:
        """Return what an object uses, by the names of all quota resources."""
        counted = {f"count/{kind_id}": _ONE}
        if kind_id == PODS:
            return counted | (_of_pod(obj) if self._is_alive(obj) else {})
        if kind_id == SERVICES:
            return counted | _of_service(obj)
        if kind_id == VOLUME_CLAIMS:
            return counted | _of_volume_claim(obj)
        if kind_id == CLAIMS:
            return counted | self._of_claim(obj)
        return counted | ({kind_id: _ONE} if kind_id in _OLD_NAMES else {})

    def _is_alive(self, pod: Plain) -> bool:
        """Return whether a pod has not ended, and is not overdue by more than its grace period."""
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return False
        end, grace = (pod["metadata"].get(name) for name in ("deletionTimestamp", "deletionGracePeriodSeconds"))
        if end is None or grace is None:
            return True
        return self._clock() <= datetime.fromisoformat(end) + timedelta(seconds=grace)

    def _of_claim(self, claim: Plain) -> Amounts:
        found: Amounts = {}
        for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
            most: dict[str, int] = {}
            for each in request.get("firstAvailable") or [request.get("exactly") or {}]:
                name = each.get("deviceClassName") or ""
                if each:
                    most[name] = max(most.get(name, 0), _devices(each))
            for name, count in most.items():
                key = f"{name}{_BY_DEVICES}"
                found[key] = found.get(key, _ZERO) + Quantity.of(count)
        if self._has_extended:
            found |= self._not_counted_for_pod(claim, found)
        return found

    def _not_counted_for_pod(self, claim: Plain, devices: Amounts) -> Amounts:
        """A claim's devices as the extended resources that their classes provide, minus what its pod counts."""
        found: Amounts = {}
        for name, count in devices.items():
            device_class = name.removesuffix(_BY_DEVICES)
            spec = (self._store.get(_CLASSES, ("", device_class)) or {}).get("spec") or {}
            for resource in (f"{v1.IMPLICIT_RESOURCE_PREFIX}{device_class}", spec.get("extendedResourceName")):
                if resource:
                    found[f"{REQUESTS_PREFIX}{resource}"] = count
        pod = self._pod_of(claim)
        counted = self.of(PODS, pod) if pod else {}
        left = {name: amount - counted.get(name, _ZERO) for name, amount in found.items()}
        return {name: amount for name, amount in left.items() if amount > _ZERO}

    def _pod_of(self, claim: Plain) -> Plain | None:
        """The pod of a claim for extended resources, if that is the claim in the pod's status, or the oldest."""
        metadata, owner = claim["metadata"], _owning_pod(claim)
        pod = self._store.get(PODS, (metadata["namespace"], owner["name"])) if owner else None
        if owner is None or pod is None or pod["metadata"]["uid"] != owner["uid"]:
            return None
        extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
        if extended is not None:
            return pod if extended.get("resourceClaimName") in ("", metadata["name"]) else None
        others = (
            each
            for each in self._store.objects(CLAIMS, metadata["namespace"])
            if (_owning_pod(each) or {}).get("uid") == owner["uid"]
        )
        return None if any(_since(each) < _since(claim) for each in others) else pod

    def _extended_resources(self) -> set[str]:
        """The extended resources that device classes provide."""
        if not self._has_extended:
            return set()
        found: set[str] = set()
        for each in self._store.objects(_CLASSES):
            found.add(f"{v1.IMPLICIT_RESOURCE_PREFIX}{each['metadata']['name']}")
            found.add((each.get("spec") or {}).get("extendedResourceName") or "")
        return found - {""}


def missing(pod: Plain, names: Iterable[str]) -> str:
    """Return which containers lack requests or limits that a quota measures, in upstream's text; empty if none."""
    spec = pod["spec"]
    whole = spec.get("resources") or {}
    if any(name in _PLAIN or name.startswith(HUGE_PAGES) for name in _named(whole)):
        return ""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    lacking = []
    for name in sorted(_REQUIRED_AMOUNTS & {*names}):
        which, _, resource = name.rpartition(".")
        silent = {
            each["name"]
            for each in containers
            if resource not in ((each.get("resources") or {}).get(which or "requests") or {})
        }
        if silent:
            lacking.append(f"{name} for: {','.join(sorted(silent))}")
    return f"must specify {'; '.join(lacking)}" if lacking else ""


def _named(resources: Plain) -> set[str]:
    return {*(resources.get("requests") or ()), *(resources.get("limits") or ())}


def _of_pod(pod: Plain) -> Amounts:
    found: Amounts = {"pods": _ONE}
    for name, amount in amounts_of_pod(pod, "requests").items():
        if name in _COMPUTE or name.startswith(HUGE_PAGES):
            found |= {name: amount, f"{REQUESTS_PREFIX}{name}": amount}
        elif is_extended_resource(name) or name.startswith(v1.IMPLICIT_RESOURCE_PREFIX):
            found[f"{REQUESTS_PREFIX}{name}"] = amount
    limits = amounts_of_pod(pod, "limits").items()
    return found | {f"limits.{name}": amount for name, amount in limits if name in _COMPUTE}


def _of_service(service: Plain) -> Amounts:
    spec: Plain = service.get("spec") or {}
    ports, kind = spec.get("ports") or [], spec.get("type")
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [each for each in ports if each.get("nodePort")]
    count = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    found = {"services": _ONE, "services.nodeports": Quantity.of(count)}
    return found | {"services.loadbalancers": Quantity.of(int(kind == "LoadBalancer"))}


def _of_volume_claim(claim: Plain) -> Amounts:
    found: Amounts = {"persistentvolumeclaims": _ONE}
    spec, metadata = claim.get("spec") or {}, claim["metadata"]
    wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if wanted is not None:
        allocated = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage", "0")
        found["requests.storage"] = _whole(max(quantity(wanted), quantity(allocated)))
    old_way = (metadata.get("annotations") or {}).get("volume.beta.kubernetes.io/storage-class")
    name = spec.get("storageClassName") if old_way is None else old_way
    return found | ({f"{name}{_BY_STORAGE}{which}": amount for which, amount in found.items()} if name else {})


def _whole(amount: Quantity) -> Quantity:
    return Quantity.of(amount.value(), amount.format) if amount.milli_value() % 1000 else amount


def _devices(request: Plain) -> int:
    mode = request.get("allocationMode")
    return int(request.get("count") or 0) if mode == v1.EXACT_COUNT else _MAX_DEVICES if mode == v1.ALL else 0


def _owning_pod(claim: Plain) -> Plain | None:
    """The reference to the pod for whose extended resources a scheduler made the claim."""
    if (claim["metadata"].get("annotations") or {}).get(v1.EXTENDED_RESOURCE_CLAIM) != "true":
        return None
    owners = claim["metadata"].get("ownerReferences") or ()
    owner: Plain | None = next((each for each in owners if each.get("controller")), None)
    return owner if owner and (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod") else None


def _since(claim: Plain) -> tuple[str, str]:
    return str(claim["metadata"].get("creationTimestamp")), str(claim["metadata"]["name"])


def _is_huge(name: str) -> bool:
    return name.removeprefix(REQUESTS_PREFIX).startswith(HUGE_PAGES)


def _is_extended(name: str) -> bool:
    """Return whether a quota resource is an extended resource."""
    is_asked = name.startswith(REQUESTS_PREFIX)
    return is_asked and (
        not is_native_resource(name) or _requested_resource(name).startswith(v1.IMPLICIT_RESOURCE_PREFIX)
    )


def _requested_resource(name: str) -> Any:
    return name.removeprefix(REQUESTS_PREFIX) if name.startswith(REQUESTS_PREFIX) else None
