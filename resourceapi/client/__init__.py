"""A small client of the Kubernetes API, for threads: typed objects, list and watch, credentials that rotate.

client = Client(in_cluster())                    or Client(from_kubeconfig(path))
slices = client.resource(v1.ResourceSlice)       slices.create(...), slices.list(field_selector="spec.driver=x")
slices = client.any_version(v1.ResourceSlice)    the same, with servers that do not have v1 yet, too
with slices.watch() as events: ...               first all objects, then what happens to them, for ever
"""

from resourceapi.client.credentials import Credentials, CredentialsError, from_kubeconfig, in_cluster
from resourceapi.client.errors import ClientError, Refused, Unreachable
from resourceapi.client.http import Client
from resourceapi.client.resource import Page, Resource
from resourceapi.client.versions import AnyVersion
from resourceapi.client.watch import Event, Watch

__all__ = [
    "AnyVersion",
    "Client",
    "ClientError",
    "Credentials",
    "CredentialsError",
    "Event",
    "Page",
    "Refused",
    "Resource",
    "Unreachable",
    "Watch",
    "from_kubeconfig",
    "in_cluster",
]
