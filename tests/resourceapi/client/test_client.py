"""The client with our own API server: objects, lists, watches, errors."""

import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from resourceapi.client import Refused, Unreachable, from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta, v1
from tests.controlplane.apiserver.running import Http, Running, device_class
from tests.threads import no_more_threads


@pytest.fixture
def server() -> Iterator[Running]:
    """A new server."""
    with Running(collect_after=None) as running:
        yield running


@pytest.fixture
def client(server: Running, tmp_path: Path) -> Iterator[Client]:
    """A client with the server's kubeconfig."""
    found = Client(from_kubeconfig(server.kubeconfig(tmp_path / "config")), attempts=2, wait=lambda seconds: None)
    yield found
    found.close()


def _class(name: str) -> v1.DeviceClass:
    return v1.DeviceClass(metadata=ObjectMeta(name=name))


def test_object_is_created_read_updated_and_deleted(client: Client) -> None:
    """Create, read, update and delete a typed object."""
    classes = client.resource(v1.DeviceClass)
    made = classes.create(_class("gpu"))
    assert made.metadata.uid
    changed = classes.update(replace(made, spec=v1.DeviceClassSpec(extended_resource_name="example.com/gpu")))
    assert changed.metadata.generation == 2
    assert classes.get("gpu") == changed
    classes.delete("gpu", uid=made.metadata.uid)
    with pytest.raises(Refused, match='"gpu" not found') as refused:
        classes.get("gpu")
    assert (refused.value.code, refused.value.reason) == (404, "NotFound")


def test_stale_update_is_a_conflict(client: Client) -> None:
    """409 means that the object changed. An existing name is another error."""
    classes = client.resource(v1.DeviceClass)
    made = classes.create(_class("gpu"))
    classes.patch("gpu", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Refused) as refused:
        classes.update(replace(made, metadata=replace(made.metadata, labels={"a": "c"})))
    assert refused.value.is_conflict
    with pytest.raises(Refused) as refused:
        classes.create(_class("gpu"))
    assert not refused.value.is_conflict


def test_list_reads_all_pages_and_applies_selectors(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """More objects than fit on one page, with selectors."""
    monkeypatch.setattr("resourceapi.client.resource.PAGE_SIZE", 20)
    config_maps = client.raw("v1", "configmaps", namespaced=True)
    for index in range(43):
        metadata = {"name": f"m{index:03}", "namespace": "default", "labels": {"odd": str(index % 2)}}
        config_maps.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    page = config_maps.list()
    assert [item["metadata"]["name"] for item in page.items] == [f"m{index:03}" for index in range(43)]
    assert page.items[0]["kind"] == "ConfigMap"
    assert len(config_maps.list("default", label_selector="odd=1").items) == 21
    assert len(config_maps.list("kube-system").items) == 0
    assert len(config_maps.list(field_selector="metadata.name=m007").items) == 1


def test_object_is_written_in_chosen_version_and_read_as_v1(client: Client) -> None:
    """Objects are written in the chosen version, and read into the types of v1."""
    slices = client.resource(v1.ResourceSlice, "v1beta1")
    pool = v1.ResourcePool(name="p", generation=1, resource_slice_count=1)
    spec = v1.ResourceSliceSpec(driver="d.example.com", pool=pool, node_name="n", devices=(v1.Device(name="d0"),))
    made = slices.create(v1.ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec))
    assert made.spec.devices == (v1.Device(name="d0"),)


def test_status_is_updated_and_applied(client: Client) -> None:
    """The status subresource, and server-side apply."""
    claims = client.resource(v1.ResourceClaim)
    request = v1.DeviceRequest(name="r", exactly=v1.ExactDeviceRequest(device_class_name="c"))
    spec = v1.ResourceClaimSpec(devices=v1.DeviceClaim(requests=(request,)))
    made = claims.create(v1.ResourceClaim(metadata=ObjectMeta(name="c", namespace="default"), spec=spec))
    result = v1.DeviceRequestAllocationResult(request="r", driver="d.example.com", pool="p", device="d")
    allocation = v1.AllocationResult(devices=v1.DeviceAllocationResult(results=(result,)))
    claims.update_status(replace(made, status=v1.ResourceClaimStatus(allocation=allocation)))
    device = {"driver": "d.example.com", "pool": "p", "device": "d", "data": {"a": 1}}
    config = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "status": {"devices": [device]},
    }
    applied = claims.apply(config, "driver", subresource="status")
    assert applied.status.devices[0].data == {"a": 1}
    assert applied.status.allocation == allocation


def test_watch_reports_list_then_changes(client: Client, server: Running) -> None:
    """LISTED first, then each change until the watch is closed."""
    classes = client.resource(v1.DeviceClass)
    classes.create(_class("a"))
    with classes.watch() as watch:
        events = iter(watch)
        first = next(events)
        assert (first.type, [item.metadata.name for item in first.items]) == ("LISTED", ["a"])
        with server.http() as api:
            api.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", device_class("b"))
            api.ok("DELETE", "/apis/resource.k8s.io/v1/deviceclasses/a")
        second, third = next(events), next(events)
    assert (second.type, second.object.metadata.name) == ("ADDED", "b")
    assert (third.type, third.object.metadata.name) == ("DELETED", "a")
    assert list(events) == []


def test_client_without_free_thread_fails_and_works_later(client: Client) -> None:
    classes = client.resource(v1.DeviceClass)
    with no_more_threads(), pytest.raises(Unreachable, match="cannot begin: can't start new thread"):
        classes.list()
    assert classes.list().items == ()


def test_close_ends_waiting_watch(client: Client) -> None:
    """Another thread closes it."""
    watch = client.resource(v1.DeviceClass).watch()
    listed, ended = threading.Event(), threading.Event()

    def consume() -> None:
        for _ in watch:
            listed.set()
        ended.set()

    thread = threading.Thread(target=consume)
    thread.start()
    assert listed.wait(10)
    watch.close()
    assert ended.wait(10)
    thread.join()


def test_watch_connection_uses_tcp_keepalive(server: Running, client: Client) -> None:
    """TCP keepalive is on, so that a lost connection is detected: the socket has a timer in /proc/net/tcp."""
    port = f":{urllib.parse.urlsplit(server.url).port:04X}"
    with client.resource(v1.DeviceClass).watch() as watch:
        next(iter(watch))
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        timers = [fields[5][:2] for fields in lines if fields[2].endswith(port) and fields[3] == "01"]
    assert timers
    assert "00" not in timers


def test_unreachable_server_is_retried_only_for_reads(tmp_path: Path) -> None:
    """The client retries reads. The final error names the request."""
    config = tmp_path / "config"
    config.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    waited_for: list[float] = []
    client = Client(from_kubeconfig(config), attempts=3, wait=waited_for.append)
    with pytest.raises(Unreachable, match=r"GET http://127\.0\.0\.1:1/api/v1/things"):
        client.raw("v1", "things", namespaced=False).list()
    assert all(wait <= waited <= wait * 1.25 for wait, waited in zip((0.5, 1.0), waited_for, strict=True))
    with pytest.raises(Unreachable, match="POST"):
        client.raw("v1", "things", namespaced=False).create({"metadata": {"name": "x"}})
    assert len(waited_for) == 2


def test_update_keeps_unknown_fields(server: Running, client: Client) -> None:
    """Fields of a newer API survive a read and a write."""
    with server.http() as api:
        assert isinstance(api, Http)
        claims = [{"name": "a", "of": "the prototype"}]
        spec = {"containers": [{"name": "c", "image": "i"}], "deviceClaims": claims}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        api.ok("POST", "/api/v1/namespaces/default/pods", pod)
    from resourceapi.objects import core

    pods = client.resource(core.Pod)
    found = pods.get("p", "default")
    pods.update(replace(found, metadata=replace(found.metadata, labels={"x": "1"})))
    raw = client.raw("v1", "pods", namespaced=True).get("p", "default")
    assert (raw["spec"]["deviceClaims"], raw["metadata"]["labels"]) == (claims, {"x": "1"})
