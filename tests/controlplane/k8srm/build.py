"""Builders for the prototype's objects in manifest form, and for the solver's results."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.k8srm import ClusterObjects, Outcome, select_node
from controlplane.k8srm.load import cluster_of
from controlplane.k8srm.types import API_VERSION

Plain = dict[str, Any]


def device_class(name: str, driver: str = "", **spec: Any) -> Plain:
    """A class; its type is `gpu` unless `spec` contains another."""
    return _object("DeviceClass", name, {"driver": driver, "deviceType": "gpu", **spec})


def claim(name: str, *details: Plain, kind: str = "DeviceClaim", status: Plain | None = None, **spec: Any) -> Plain:
    """A claim in the namespace `default`."""
    return _object(kind, name, {"claims": list(details), **spec}, namespace="default", status=status)


def pool(name: str, node: str | None, devices: Sequence[Plain], driver: str = "d", **spec: Any) -> Plain:
    """A pool of a driver."""
    return _object("DevicePool", name, {"nodeName": node, "driver": driver, "devices": list(devices), **spec})


def device(name: str, attributes: Mapping[str, Any] | None = None, **fields: Any) -> Plain:
    """A device with attributes of strings and ints, or whole attribute values."""
    listed = [{"name": key, **_value(value)} for key, value in (attributes or {}).items()]
    return {"name": name, "attributes": listed, **fields}


def resource(name: str, capacity: str, block: str | None = None) -> Plain:
    """A capacity that is allocated in blocks."""
    return {"name": name, "capacity": capacity} | ({"blockSize": block} if block else {})


def allocated_claim(name: str, *allocations: tuple[str, str, Mapping[str, str]], admin: bool = False) -> Plain:
    """A claim with allocations: pool name, device name, amounts."""
    listed = [
        {
            "devicePoolName": pool_name,
            "deviceName": device_name,
            "adminAccess": admin,
            "allocations": [{"name": key, "allocation": value} for key, value in amounts.items()],
        }
        for pool_name, device_name, amounts in allocations
    ]
    return claim(name, {"deviceClass": "c"}, status={"allocations": listed})


def solve(*objects: Plain, verbose: bool = False) -> Outcome:
    """The outcome for all claims among the objects that have no allocation."""
    cluster = cluster_of(objects)
    return select_node(pending(cluster), cluster, verbose=verbose)


def pending(cluster: ClusterObjects) -> list[Any]:
    """The claims without an allocation."""
    return [each for each in cluster.all_claims if not each.status.allocations]


def devices_of(outcome: Outcome) -> list[list[str]]:
    """The devices of each claim as `pool/device`, followed by any amounts."""
    return [
        ["/".join([x.pool, x.device, *(f"{name}={amount // 10**9}" for name, amount in x.portions)]) for x in taken]
        for taken in outcome.assignments
    ]


def reasons_of(outcome: Outcome) -> list[str]:
    """The reasons why claims have no allocation."""
    return [each.reason for result in outcome.results for each in result.claims]


def _object(kind: str, name: str, spec: Plain, namespace: str = "", status: Plain | None = None) -> Plain:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec} | (
        {"status": status} if status else {}
    )


def _value(value: Any) -> Plain:
    if isinstance(value, dict):
        return value
    return {"intValue": value} if isinstance(value, int) else {"stringValue": value}
