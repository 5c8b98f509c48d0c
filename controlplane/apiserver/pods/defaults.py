"""The defaults of a pod's spec, on which kubelets rely. Pod templates have most of them.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go; kubernetes.io "Pod", the fields' defaults.
"""

from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.resources import with_pod_requests
from controlplane.apiserver.rules.image_names import pull_policy
from controlplane.apiserver.rules.volume_defaults import with_field_version, with_missing, with_volume_defaults

_SPEC: Plain = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_CONTAINER: Plain = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE: Plain = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_HANDLERS = ("postStart", "preStop")


def with_pod_defaults(spec: Plain) -> Plain:
    """Return a pod's spec with its defaults."""
    filled = {"enableServiceLinks": True, **with_template_defaults(spec)}
    for name in ("containers", "initContainers"):
        if filled.get(name):
            filled[name] = [_with_requests(each) for each in filled[name]]
            if filled.get("hostNetwork"):
                filled[name] = list(map(_with_host_ports, filled[name]))
    if filled["terminationGracePeriodSeconds"] < 0:
        filled["terminationGracePeriodSeconds"] = 1
    return with_pod_requests(filled)


def with_template_defaults(spec: Plain) -> Plain:
    """Return the spec of a pod template with its defaults. Its pods get the other defaults when they are created."""
    filled = {**_SPEC, **{name: item for name, item in spec.items() if item is not None}}
    account = filled.get("serviceAccountName") or filled.get("serviceAccount")
    if account:  # two names of one field
        filled |= {"serviceAccountName": account, "serviceAccount": account}
    for name in ("containers", "initContainers", "ephemeralContainers"):
        if isinstance(filled.get(name), list):
            filled[name] = [_container(each) if isinstance(each, dict) else each for each in filled[name]]
    if isinstance(filled.get("volumes"), list):
        filled["volumes"] = [with_volume_defaults(x) if isinstance(x, dict) else x for x in filled["volumes"]]
    return filled


def _with_requests(container: Any) -> Any:
    """Set missing requests of a container to its limits."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict) or not isinstance(resources.get("limits"), dict):
        return container
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _with_host_ports(container: Any) -> Any:
    """Set the host ports of a container in the host's network."""
    if not isinstance(container, dict) or not container.get("ports"):
        return container
    ports = [{**each, "hostPort": each.get("hostPort") or each.get("containerPort")} for each in container["ports"]]
    return {**container, "ports": ports}


def _container(container: Plain) -> Plain:
    image = str(container.get("image") or "")
    filled = {**_CONTAINER, "imagePullPolicy": pull_policy(image)}
    filled |= {name: item for name, item in container.items() if item not in (None, "")}
    for name in _PROBES:
        if isinstance(filled.get(name), dict):
            filled[name] = _probe(filled[name])
    if isinstance(lifecycle := filled.get("lifecycle"), dict):
        filled["lifecycle"] = {
            name: _handler(each) if name in _HANDLERS and isinstance(each, dict) else each
            for name, each in lifecycle.items()
        }
    if isinstance(filled.get("ports"), list):
        filled["ports"] = [{"protocol": "TCP", **each} if isinstance(each, dict) else each for each in filled["ports"]]
    if isinstance(filled.get("env"), list):
        filled["env"] = [_variable(each) for each in filled["env"]]
    return filled


def _probe(probe: Plain) -> Plain:
    filled = _handler({**_PROBE, **probe})
    if isinstance(filled.get("grpc"), dict):
        filled["grpc"] = {**filled["grpc"], "service": filled["grpc"].get("service") or ""}
    return filled


def _handler(handler: Plain) -> Plain:
    """A handler of a container's lifecycle or probe, with defaults."""
    if not isinstance(handler.get("httpGet"), dict):
        return handler
    return {**handler, "httpGet": with_missing({"path": "/", "scheme": "HTTP"}, handler["httpGet"])}


def _variable(variable: Any) -> Any:
    source = variable.get("valueFrom") if isinstance(variable, dict) else None
    if source is None:
        return variable
    filled = with_field_version(source)
    if isinstance(filled.get("fileKeyRef"), dict):
        filled = {**filled, "fileKeyRef": {"optional": False, **filled["fileKeyRef"]}}
    return {**variable, "valueFrom": filled}


def with_addresses_in_sync(status: Plain) -> Plain:
    """Return a pod's status whose podIP is the first of its podIPs. If they differ, podIP counts."""
    one, several = status.get("podIP") or "", status.get("podIPs") or []
    if one and (not several or several[0].get("ip") != one):
        return {**status, "podIPs": [{"ip": one}]}
    return {**status, "podIP": several[0].get("ip") or ""} if several and not one else status
