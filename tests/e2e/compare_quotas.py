"""Compare random quotas and limit ranges, and writes that they affect, on the stand-in API server and a real one.

    python -m tests.e2e.compare_quotas ROUNDS [--seed N] [--show N]

In each round, quotas and limit ranges are created in a namespace, then objects that fit and objects that do not. The
answers and the usage in the quotas' status are compared. No controllers run on either side; the command itself sets
the initial usage.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.controlplane.apiserver.random_requests import Request
from tests.controlplane.apiserver.running import MERGE, Http, Plain
from tests.e2e.compare_servers import members_of_ours, run
from tests.e2e.server_pair import FormattedRequest, Pair, Shown, differences

WRITES = 25
"""Writes per round."""
_CLAIMS, _QUOTAS = "persistentvolumeclaims", "resourcequotas"
_DRA = "/apis/resource.k8s.io/v1"
_HARD = {
    **dict.fromkeys(("pods", "count/pods", "services", "count/services", "services.nodeports"), ("1", "2", "4")),
    **dict.fromkeys(("cpu", "requests.cpu", "limits.cpu"), ("1", "900m", "1500m", "2")),
    **dict.fromkeys(("memory", "requests.memory", "limits.memory"), ("1Gi", "1500M", "0.5Gi")),
    **dict.fromkeys(("requests.ephemeral-storage", "requests.hugepages-2Mi", "hugepages-2Mi"), ("1Gi", "3Gi")),
    **dict.fromkeys(("requests.example.com/gpu", "requests.example.com/other"), ("0", "2", "40")),
    **{f"{name}.deviceclass.resource.k8s.io/devices": ("0", "3", "40") for name in ("gpu", "nic", "none")},
    **{f"requests.deviceclass.resource.kubernetes.io/{name}": ("0", "3", "40") for name in ("gpu", "none")},
    **dict.fromkeys(("count/resourceclaims.resource.k8s.io", "count/configmaps", "configmaps"), ("1", "2")),
    **dict.fromkeys((_CLAIMS, f"count/{_CLAIMS}", "count/drivers.example.com", "count/leases"), ("1", "2")),
    **dict.fromkeys(("requests.storage", "fast.storageclass.storage.k8s.io/requests.storage"), ("10Gi", "1500Mi")),
    "fast.storageclass.storage.k8s.io/persistentvolumeclaims": ("1",),
    "services.loadbalancers": ("0", "1"),
}
_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
_OF_SCOPES = ("pods", "cpu", "requests.cpu", "memory", "limits.memory", "count/pods", "requests.example.com/gpu")
_CPU, _MEMORY = ("100m", "500m", "1", "1200m"), ("64Mi", "500M", "1Gi")


class Compared(NamedTuple):
    """A request, and the differences of the answers."""

    request: Request
    found: list[str]
    reason: str


def main() -> None:
    """Run the command; exits with 1 if there are differences without a reason."""
    run("compare_quotas", str(__doc__), "rounds", compared, _print)


def compared(ours: Http, real: Http, rounds: int, seed: int) -> Iterator[Compared]:
    """Compare the writes of this number of rounds."""
    pair, choose = Pair(ours, real), random.Random(seed)
    for name, extended in (("gpu", "example.com/gpu"), ("nic", None)):
        spec = {"extendedResourceName": extended} if extended else {}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        pair.ask(FormattedRequest(Request("POST", f"{_DRA}/deviceclasses", body)))
    for number in range(rounds):
        space = f"quota-{number}"
        core = f"/api/v1/namespaces/{space}"
        pair.ask(FormattedRequest(Request("POST", "/api/v1/namespaces", _object("v1", "Namespace", space))))
        if choose.random() < 0.5:  # with several, a real server checks them in any order
            yield _exchange(pair, Request("POST", f"{core}/limitranges", _limit_range(choose, "limits")))
        for each in range(choose.choice((1, 1, 1, 2))):
            _add_quota(pair, core, _quota(choose, f"quota-{each}"))
        _add_quota(pair, core, _object("v1", "ResourceQuota", "seen", {"hard": {"count/secrets": "0"}}))
        for api in pair.servers:
            while api.send("POST", f"{core}/secrets", _object("v1", "Secret", "a")).status != 403:
                api.send("DELETE", f"{core}/secrets/a")  # until the server's own cache contains the quota
        for count in range(WRITES):
            yield _exchange(pair, _write(choose, space, count))
        yield _exchange(pair, Request("GET", f"{core}/{_QUOTAS}"))


def _exchange(pair: Pair, request: Request) -> Compared:
    mine, theirs, _ = pair.ask(FormattedRequest(request))
    theirs = theirs._replace(body=members_of_ours(mine.body, theirs.body))
    mine, theirs = (each._replace(body=_without_ports(each.body)) for each in (mine, theirs))
    found = differences(mine._asdict(), theirs._asdict())
    return Compared(request, found, _reason(mine, theirs) if found else "")


def _without_ports(body: Any) -> Any:
    """Remove a service's node ports, which each server chooses."""
    if not isinstance(body, dict) or body.get("kind") != "Service":
        return body
    ports = [{name: item for name, item in each.items() if name != "nodePort"} for each in body["spec"]["ports"]]
    return body | {"spec": body["spec"] | {"ports": ports}}


def _reason(mine: Shown, theirs: Shown) -> str:
    if mine.status != 403 or theirs.status != 403:
        return ""
    texts = [each.body["message"] for each in (mine, theirs)]
    if all(" quota: " in text for text in texts):
        return "several quotas refuse it"
    return "several limits refuse it" if all(" usage per " in text or " ratio per " in text for text in texts) else ""


def _add_quota(pair: Pair, core: str, quota: Plain) -> None:
    """Create a quota without usage."""
    mine, theirs, _ = pair.ask(FormattedRequest(Request("POST", f"{core}/{_QUOTAS}", quota)))
    if mine.status == theirs.status == 201:
        hard = quota["spec"]["hard"]
        status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
        path = f"{core}/{_QUOTAS}/{quota['metadata']['name']}/status"
        pair.ask(FormattedRequest(Request("PATCH", path, status, content=MERGE)))


def _object(version: str, kind: str, name: str, spec: Any = None) -> Plain:
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
    return made if spec is None else made | {"spec": spec}


def _quota(choose: random.Random, name: str) -> Plain:
    scopes = choose.sample(_SCOPES, 1) if choose.random() < 0.3 else []
    names = choose.sample(_OF_SCOPES if scopes else sorted(_HARD), choose.randint(1, 6))
    if scopes == ["BestEffort"]:
        names = ["pods"]
    spec: Plain = {"hard": {each: choose.choice(_HARD[each]) for each in names}}
    if scopes == ["PriorityClass"] and choose.random() < 0.5:
        operator = choose.choice(("In", "NotIn", "DoesNotExist"))
        values = ["system-node-critical"] if operator != "DoesNotExist" else []
        expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
        spec["scopeSelector"] = {"matchExpressions": [expression]}
    elif scopes:
        spec["scopes"] = scopes
    return _object("v1", "ResourceQuota", name, spec)


def _limit_range(choose: random.Random, name: str) -> Plain:
    kind = choose.choice(("Container", "Container", "Pod", "PersistentVolumeClaim"))
    if kind == "PersistentVolumeClaim":
        sizes = {member: {"storage": choose.choice(("1Gi", "2Gi"))} for member in choose.sample(("min", "max"), 1)}
        return _object("v1", "LimitRange", name, {"limits": [sizes | {"type": kind}]})
    amounts = {"cpu": _CPU, "memory": _MEMORY}
    members = ("min", "max", "default", "defaultRequest") if kind == "Container" else ("min", "max")
    limit: Plain = {
        member: {each: choose.choice(amounts[each]) for each in choose.sample(sorted(amounts), choose.randint(1, 2))}
        for member in choose.sample(members, choose.randint(1, 2))
    }
    if choose.random() < 0.3:
        limit["maxLimitRequestRatio"] = {"cpu": choose.choice(("1", "1500m", "3"))}
    return _object("v1", "LimitRange", name, {"limits": [limit | {"type": kind}]})


def _write(choose: random.Random, space: str, count: int) -> Request:
    """Return the next request. New objects have unique names: a real server charges for an existing name as well."""
    core, name, old = f"/api/v1/namespaces/{space}", f"object-{count}", f"object-{choose.randrange(count + 1)}"
    what = choose.choice(("pods", "pods", "pods", "claims", "claims", _CLAIMS, "services", "configmaps", "drivers", ""))
    query = {"dryRun": "All"} if choose.random() < 0.1 else {}
    if what == "":
        sooner = {"spec": {"activeDeadlineSeconds": choose.choice((10, 20))}}
        return Request("PATCH", f"{core}/pods/{old}", sooner, content=MERGE, query=query)
    if what == "pods":
        return Request("POST", f"{core}/pods", _object("v1", "Pod", name, _pod(choose)), query=query)
    if what == "configmaps":
        return Request("POST", f"{core}/configmaps", _object("v1", "ConfigMap", name), query=query)
    if what == "drivers":
        body = _object("example.com/v1", "Driver", name, {"n": 1, "type": "a"})
        return Request("POST", f"/apis/example.com/v1/namespaces/{space}/drivers", body, query=query)
    if what == "services":
        kind = choose.choice(("ClusterIP", "NodePort", "LoadBalancer"))
        if choose.random() < 0.3:
            return Request("PATCH", f"{core}/services/{old}", {"spec": {"type": kind}}, content=MERGE, query=query)
        ports = [{"port": 80 + each, "name": f"p{each}"} for each in range(choose.randint(1, 2))]
        body = _object("v1", "Service", name, {"type": kind, "ports": ports})
        return Request("POST", f"{core}/services", body, query=query)
    if what == _CLAIMS:
        storage = {"requests": {"storage": choose.choice(("1Gi", "500Mi", "1500M", "3Gi", "1500m"))}}
        spec: Plain = {"accessModes": ["ReadWriteOnce"], "resources": storage}
        if choose.random() < 0.5:
            spec["storageClassName"] = choose.choice(("fast", "slow"))
        return Request("POST", f"{core}/{_CLAIMS}", _object("v1", "PersistentVolumeClaim", name, spec), query=query)
    body = _object("resource.k8s.io/v1", "ResourceClaim", name, {"devices": {"requests": _requests(choose)}})
    return Request("POST", f"{_DRA}/namespaces/{space}/resourceclaims", body, query=query)


def _requests(choose: random.Random) -> list[Plain]:
    def one() -> Plain:
        found: Plain = {"deviceClassName": choose.choice(("gpu", "nic", "none"))}
        amounts: list[Plain] = [{}, {"count": 2}, {"allocationMode": "All"}]
        return found | choose.choice(amounts)

    made: list[Plain] = [{"name": "a", "exactly": one()}]
    if choose.random() < 0.5:
        made.append({"name": "b", "firstAvailable": [one() | {"name": f"s{n}"} for n in range(choose.randint(1, 3))]})
    return made


def _pod(choose: random.Random) -> Plain:
    spec: Plain = {"containers": [_container(choose, f"c{n}") for n in range(choose.randint(1, 2))]}
    if choose.random() < 0.3:
        first = _container(choose, "i0") | choose.choice(({}, {"restartPolicy": "Always"}))
        spec["initContainers"] = [first, _container(choose, "i1")]
    if choose.random() < 0.2:
        spec["resources"] = {"requests": {"cpu": "3", "memory": "5Gi"}}
    if choose.random() < 0.2:
        spec["priorityClassName"] = choose.choice(("system-node-critical", "system-cluster-critical"))
    if choose.random() < 0.2:
        spec["activeDeadlineSeconds"] = 100
    if choose.random() < 0.2:
        term = {"topologyKey": "a", "labelSelector": {}} | choose.choice(({}, {"namespaces": ["x"]}))
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {choose.choice(("podAffinity", "podAntiAffinity")): {required: [term]}}
    return spec


def _container(choose: random.Random, name: str) -> Plain:
    requests: Plain = {}
    limits: Plain = {}
    for resource, amounts in (("cpu", _CPU), ("memory", _MEMORY), ("ephemeral-storage", _MEMORY)):
        if choose.random() < 0.6:
            requests[resource] = choose.choice(amounts)
        if choose.random() < 0.3:
            limits[resource] = choose.choice(("2", "3")) if resource == "cpu" else "2Gi"
    if choose.random() < 0.3:
        limits[choose.choice(("example.com/gpu", "example.com/other"))] = choose.choice(("1", "2"))
    if choose.random() < 0.1:
        limits["deviceclass.resource.kubernetes.io/gpu"] = "1"
    if "cpu" in requests and choose.random() < 0.2:
        requests["hugepages-2Mi"] = limits["hugepages-2Mi"] = "2Mi"
    return {"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}}


def _print(each: Compared, width: int) -> None:
    print(f"{each.request.method} {each.request.path} {dict(each.request.query)}")
    print(f"  body {str(each.request.body)[:width]}")
    for text in each.found[:8]:
        print(f"  {text[:width]}")


if __name__ == "__main__":
    main()
