"""The API server for `schedule`. The server's discovery says which resource serves a kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.k8srm.errors import K8srmError
from controlplane.k8srm.load import ObjectName
from controlplane.k8srm.schedule import Api
from resourceapi.client import ClientError, Refused
from resourceapi.client.blocking import Client, Resource
from resourceapi.objects import DecodeError

Plain = dict[str, Any]


class ClientApi(Api):
    """`Api` over a client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources: dict[str, dict[str, Resource[Plain]]] = {}

    def list(self, api_version: str, kind: str) -> list[Plain]:
        with _translate_errors(f"list {kind} objects"):
            return list(self._resource(api_version, kind).list().items)

    def get(self, name: ObjectName) -> Plain | None:
        with _translate_errors(f"get {name}"):
            if name.kind not in self._kinds(name.api_version):
                return None
            try:
                return self._resource(name.api_version, name.kind).get(name.name, name.namespace)
            except Refused as refusal:
                if refusal.code == 404:
                    return None
                raise

    def create(self, value: Plain) -> Plain:
        with _translate_errors(f"create {_name(value)}"):
            return self._resource_of(value).create(value)

    def update_status(self, value: Plain) -> Plain:
        with _translate_errors(f"update the status of {_name(value)}"):
            return self._resource_of(value).update_status(value)

    def delete(self, name: ObjectName) -> None:
        with _translate_errors(f"delete {name}"):
            self._resource(name.api_version, name.kind).delete(name.name, name.namespace)

    def bind(self, namespace: str, pod: str, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        with _translate_errors(f"bind pod {namespace}/{pod} to node {node}"):
            self._client.request("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", binding)

    def _resource_of(self, value: Plain) -> Resource[Plain]:
        return self._resource(value["apiVersion"], value["kind"])

    def _resource(self, api_version: str, kind: str) -> Resource[Plain]:
        found = self._kinds(api_version).get(kind)
        if found is None:
            raise K8srmError(f"the server has no {kind} of {api_version}; `nodeplug k8srm apiserver` has")
        return found

    def _kinds(self, api_version: str) -> dict[str, Resource[Plain]]:
        """What the server serves in an API version, by kind; empty if it does not know the version."""
        known = self._resources.get(api_version)
        if known is None:
            root = "/apis" if "/" in api_version else "/api"
            try:
                served = self._client.request("GET", f"{root}/{api_version}")["resources"]
            except Refused as refusal:
                if refusal.code != 404:
                    raise
                served = []
            known = self._resources[api_version] = {
                each["kind"]: self._client.raw(api_version, each["name"], namespaced=each["namespaced"])
                for each in served
                if "/" not in each["name"]
            }
        return known


@contextmanager
def _translate_errors(operation: str) -> Iterator[None]:
    try:
        yield
    except (ClientError, DecodeError) as error:
        raise K8srmError(f"cannot {operation}: {error}") from error


def _name(value: Plain) -> ObjectName:
    metadata = value["metadata"]
    return ObjectName(value["apiVersion"], value["kind"], metadata.get("namespace", ""), metadata["name"])
