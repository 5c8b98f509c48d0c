"""DeviceConfigs for claims and classes: invalid ones with the error messages, and valid ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from resourceapi.client import Refused
from resourceapi.client.blocking import Client
from tests.controlplane.scheduler.kit import Json

POLICY = Path(__file__).resolve().parents[1] / "deploy/overlays/device-config-policy/policy.yaml"
GOOD: Json = {"apiVersion": "nodeplug.dev/v1", "kind": "DeviceConfig"}
INTERFACE: Json = {"name": "data0", "mtu": 9000, "mac": "02:00:5e:00:53:01", "addresses": ["192.0.2.7/24"]}

FOR_CLAIMS: list[Json] = [
    GOOD,
    GOOD | {"env": {"MODEL": "{model}"}, "access": {"gid": 44, "mode": "0660"}, "reset": True, "interface": INTERFACE},
    GOOD | {"mounts": [], "interface": {"mtu": None}},
]
FOR_CLASSES: list[Json] = [
    *FOR_CLAIMS,
    GOOD | {"env": {"HOME": "/x"}, "sharing": {"maximum": 2}},
    GOOD | {"mounts": [{"hostPath": "/opt/lib", "containerPath": "/lib/x", "readOnly": False}]},
]
WRONG: list[tuple[Json, str]] = [
    ({"apiVersion": "nodeplug.dev/v2", "kind": "DeviceConfig"}, "must have apiVersion nodeplug.dev/v1"),
    ({"apiVersion": "nodeplug.dev/v1"}, "kind DeviceConfig"),
    (GOOD | {"environment": {}}, "parameters.environment: there is no such field"),
    (GOOD | {"access": {"group": 44}}, "parameters.access.group: there is no such field"),
    (GOOD | {"interface": {"ip": "192.0.2.7"}}, "parameters.interface.ip: there is no such field"),
    (GOOD | {"env": ["A=b"]}, "parameters: env, access"),
    (GOOD | {"reset": "yes"}, "reset is true or false"),
    (GOOD | {"env": {"A": "b", "SIZE": 1}}, "parameters.env.SIZE: a variable"),
    (GOOD | {"env": {"a-b": "c"}}, "parameters.env.a-b: a variable"),
    (GOOD | {"env": {"LD_PRELOAD": "/x.so"}}, "parameters.env.LD_PRELOAD: cannot be set by"),
    (GOOD | {"access": {"uid": -1}}, "uid and gid are numbers"),
    (GOOD | {"access": {"mode": 660}}, "permission bits in octal"),
    (GOOD | {"interface": {"name": "eth0"}}, "parameters.interface.name"),
    (GOOD | {"interface": {"mtu": 20}}, "parameters.interface.mtu"),
    (GOOD | {"interface": {"mac": "01:00:5e:00:53:01"}}, "parameters.interface.mac"),
    (GOOD | {"interface": {"addresses": ["192.0.2.7"]}}, "parameters.interface.addresses"),
]
WRONG_IN_CLAIMS: list[tuple[Json, str]] = [
    *WRONG,
    (GOOD | {"env": {"https_proxy": "x"}}, "parameters.env.https_proxy: cannot be set by a claim"),
    (GOOD | {"sharing": {"maximum": 2}}, "only a DeviceClass can set them"),
    (GOOD | {"mounts": [{"hostPath": "/opt/lib"}]}, "only a DeviceClass can set them"),
]
WRONG_IN_CLASSES: list[tuple[Json, str]] = [
    *WRONG,
    (GOOD | {"sharing": {"maximum": 0}}, "parameters.sharing: must be {maximum: N}"),
    (GOOD | {"mounts": [{"hostPath": "lib"}]}, "parameters.mounts: each has hostPath"),
    (GOOD | {"mounts": [{"containerPath": "/lib"}]}, "parameters.mounts: each has hostPath"),
]


def policy() -> tuple[Json, Json]:
    """Return the ValidatingAdmissionPolicy of the overlay, and its binding."""
    made, binding = yaml.safe_load_all(POLICY.read_text())
    return made, binding


def install(client: Client) -> None:
    """Install the policy in an API server."""
    plurals = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    for each, plural in zip(policy(), plurals, strict=True):
        client.raw(each["apiVersion"], plural, namespaced=False).create(each)


def with_parameters(plural: str, parameters: Any, driver: str = "nodeplug.dev") -> Json:
    """Return an object of a kind of resource.k8s.io/v1 that contains parameters for a driver."""
    config = [{"opaque": {"driver": driver, "parameters": parameters}}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}], "config": config}}
    kinds: dict[str, tuple[str, Json]] = {
        "deviceclasses": ("DeviceClass", {"config": config}),
        "resourceclaims": ("ResourceClaim", spec),
        "resourceclaimtemplates": ("ResourceClaimTemplate", {"spec": spec}),
    }
    kind, content = kinds[plural]
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": content}


def refusal(client: Client, plural: str, parameters: Any, driver: str = "nodeplug.dev") -> str:
    """Return the server's refusal of an object with these parameters, or "" if it is valid; a dry run."""
    place = "" if plural == "deviceclasses" else "namespaces/default/"
    path = f"/apis/resource.k8s.io/v1/{place}{plural}?dryRun=All"
    try:
        client.request("POST", path, with_parameters(plural, parameters, driver))
    except Refused as refused:
        return refused.message
    return ""


def disagreements(client: Client) -> Iterator[tuple[str, Json, str]]:
    """Yield each object that a server with the policy judges wrongly, with the server's message."""
    for plural in ("deviceclasses", "resourceclaims", "resourceclaimtemplates"):
        is_class = plural == "deviceclasses"
        wrong = WRONG_IN_CLASSES if is_class else WRONG_IN_CLAIMS
        good = [(each, "") for each in (FOR_CLASSES if is_class else FOR_CLAIMS)]
        for parameters, words in wrong + good:
            message = refusal(client, plural, parameters)
            if (words not in message) if words else message:
                yield plural, parameters, message
        if message := refusal(client, plural, {"whatever": 1}, driver="gpu.example.com"):
            yield plural, {"whatever": 1}, message
