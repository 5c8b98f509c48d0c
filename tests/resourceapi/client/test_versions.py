"""resource.k8s.io objects on servers of every release."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from resourceapi.client import Refused, from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta, v1
from tests.controlplane.apiserver.running import Running


@pytest.fixture
def server() -> Iterator[Running]:
    """A new server."""
    with Running(collect_after=None) as running:
        yield running


@pytest.fixture
def client(server: Running, tmp_path: Path) -> Iterator[Client]:
    """A client with the server's kubeconfig."""
    found = Client(from_kubeconfig(server.kubeconfig(tmp_path / "config")), attempts=1)
    yield found
    found.close()


@pytest.fixture
def serve_versions(server: Running) -> Callable[..., None]:
    """A function that restricts the served versions of slices."""
    registry = server.server.registry
    slices = next(kind for kind in registry if kind.plural == "resourceslices")

    def restrict(*versions: str) -> None:
        registry.add(replace(slices, versions=tuple(each for each in slices.versions if each.name in versions)))

    return restrict


def _slice(name: str) -> v1.ResourceSlice:
    pool = v1.ResourcePool(name="p", generation=1, resource_slice_count=1)
    capacity = {"memory": v1.DeviceCapacity()}
    spec = v1.ResourceSliceSpec(
        driver="d.example.com", pool=pool, node_name="n", devices=(v1.Device(name="d0", capacity=capacity),)
    )
    return v1.ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_each_verb_uses_the_served_version(client: Client, serve_versions: Callable[..., None], version: str) -> None:
    serve_versions(version)
    slices = client.any_version(v1.ResourceSlice)
    made = slices.create(_slice("s"))
    assert slices.version == version
    assert made.spec == _slice("s").spec
    changed = slices.update(replace(made, spec=replace(made.spec, devices=())))
    assert slices.get("s") == changed
    assert slices.list(field_selector="spec.driver=d.example.com").items == (changed,)
    slices.delete("s", uid=made.metadata.uid, version=changed.metadata.resource_version)
    assert slices.list().items == ()


def test_client_switches_version_after_server_upgrade(client: Client, serve_versions: Callable[..., None]) -> None:
    serve_versions("v1beta1")
    slices = client.any_version(v1.ResourceSlice)
    slices.create(_slice("s"))
    serve_versions("v1")
    assert slices.get("s").spec == _slice("s").spec
    assert slices.version == "v1"


def test_missing_object_does_not_change_version(client: Client) -> None:
    """The client sends one request and keeps its version."""
    slices = client.any_version(v1.ResourceSlice)
    with pytest.raises(Refused, match='"gone" not found') as refused:
        slices.get("gone")
    assert refused.value.is_missing
    assert slices.version == "v1"


def test_server_without_api_group_is_a_404(client: Client, serve_versions: Callable[..., None]) -> None:
    serve_versions()
    with pytest.raises(Refused) as refused:
        client.any_version(v1.ResourceSlice).list()
    assert refused.value.code == 404
    assert not refused.value.is_missing


def test_watch_uses_version_of_its_list(client: Client, serve_versions: Callable[..., None]) -> None:
    serve_versions("v1beta1")
    slices = client.any_version(v1.ResourceSlice)
    with slices.watch(field_selector="spec.nodeName=n") as watch:
        events = iter(watch)
        assert next(events).items == ()
        slices.create(_slice("s"))
        assert next(events).object.spec == _slice("s").spec
