"""The cluster of an API server, for `nodeplug allocate`: nodes, classes, slices, taint rules, claims and templates."""

from collections.abc import Iterator
from pathlib import Path

from nodeplug.commands.allocate_input import AllocatorInput, InputError, with_objects
from resourceapi.client import ClientError, Refused, from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError, KubernetesObject
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice

_GROUP = "/apis/resource.k8s.io"
_VERSIONS = ("v1", "v1beta2", "v1beta1")  # the versions that this client reads, the best first


def read_server(kubeconfig: Path) -> AllocatorInput:
    """Read everything that affects allocation, in the newest version that both sides know. Raises InputError."""
    try:
        client = Client(from_kubeconfig(kubeconfig), attempts=2)
        try:
            return with_objects(AllocatorInput(), _objects(client))
        finally:
            client.close()
    except (ClientError, DecodeError) as error:
        raise InputError(f"--kubeconfig {kubeconfig}: {error}") from None


def _objects(client: Client) -> Iterator[KubernetesObject]:
    served = {each["version"] for each in client.request("GET", _GROUP)["versions"]}
    version = next((each for each in _VERSIONS if each in served), None)
    if version is None:
        raise InputError(
            f"the server has {', '.join(sorted(served))} of resource.k8s.io; nodeplug reads {', '.join(_VERSIONS)}"
        )
    yield from client.resource(Node).list().items
    for kind in (DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice):
        yield from client.resource(kind, version).list().items
    try:
        yield from client.resource(DeviceTaintRule).list().items
    except Refused as refusal:
        if refusal.code != 404:  # a server might not have them, or only as alpha
            raise
