"""A small client of the Kubernetes API: typed objects, list and watch, credentials that rotate, limits on everything.

client = AsyncClient(in_cluster())               or AsyncClient(from_kubeconfig(path))
slices = client.resource(v1.ResourceSlice)       await slices.create(...), slices.list(field_selector="spec.driver=x")
slices = client.any_version(v1.ResourceSlice)    the same, also with servers that do not have v1
Informer(slices, on_event, on_failure).run()     first all objects, then their changes, until cancelled

`Client` of `blocking` (not imported here) has the same for threads; its methods block.
"""

from resourceapi.client.credentials import Credentials, CredentialsError, from_kubeconfig, in_cluster
from resourceapi.client.errors import ClientError, InvalidAnswer, Refused, Unreachable
from resourceapi.client.http import AsyncClient
from resourceapi.client.informer import Informer, Watched
from resourceapi.client.resource import AsyncResource
from resourceapi.client.transport import Limits
from resourceapi.client.versions import AsyncAnyVersion
from resourceapi.client.watch import Event, Page

__all__ = [
    "AsyncAnyVersion",
    "AsyncClient",
    "AsyncResource",
    "ClientError",
    "Credentials",
    "CredentialsError",
    "Event",
    "Informer",
    "InvalidAnswer",
    "Limits",
    "Page",
    "Refused",
    "Unreachable",
    "Watched",
    "from_kubeconfig",
    "in_cluster",
]
