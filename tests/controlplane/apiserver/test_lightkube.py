"""lightkube, sync and async, with our server: the server understands its requests, and it can read the answers."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, definition, driver
from tests.controlplane.apiserver.running import Http, Running, claim, device_class

OLD = "1"
"""A version before the start of the server's history."""


@pytest.fixture(scope="module")
def lightkube() -> Any:
    """The package. Typed as Any, because its types are created at run time."""
    for part in ("generic_resource", "operators", "resources.resource_v1", "types"):
        pytest.importorskip(f"lightkube.{part}", reason="lightkube is not installed")
    return importlib.import_module("lightkube")


@pytest.fixture(scope="module")
def config(lightkube: Any, server: Running, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Our kubeconfig, read by lightkube."""
    path: Path = server.kubeconfig(tmp_path_factory.mktemp("lightkube") / "config")
    return lightkube.KubeConfig.from_file(path)


@pytest.fixture
def client(lightkube: Any, config: Any, api: Http) -> Iterator[Any]:
    """A client of a server without objects."""
    with lightkube.Client(config=config, field_manager="me") as made:
        yield made


@pytest.fixture
def kinds(lightkube: Any) -> Any:
    """lightkube's classes for resource.k8s.io/v1."""
    return lightkube.resources.resource_v1


def names(found: Any) -> list[str]:
    """The names of listed objects."""
    return [each.metadata.name for each in found]


def test_device_class_is_created_read_replaced_and_deleted(client: Any, kinds: Any, lightkube: Any) -> None:
    """Create, get, replace, delete; refusals with their Status."""
    made = client.create(kinds.DeviceClass.from_dict(device_class("gpu")))
    assert (made.metadata.generation, made.metadata.managedFields[0].manager) == (1, "me")
    assert client.get(kinds.DeviceClass, "gpu") == made
    made.spec.extendedResourceName = "example.com/gpu"
    assert client.replace(made).metadata.generation == 2
    requests: list[tuple[int, str, Callable[[], Any]]] = [
        (409, "Conflict", lambda: client.replace(made)),
        (409, "AlreadyExists", lambda: client.create(kinds.DeviceClass.from_dict(device_class("gpu")))),
        (404, "NotFound", lambda: client.get(kinds.DeviceClass, "nope")),
        (422, "Invalid", lambda: client.create(kinds.DeviceClass.from_dict(device_class("A_B")))),
    ]
    for code, reason, refused in requests:
        with pytest.raises(lightkube.ApiError) as error:
            refused()
        assert (error.value.status.code, error.value.status.reason) == (code, reason)
    assert error.value.status.details.causes[0].field == "metadata.name"
    client.delete(kinds.DeviceClass, "gpu")
    assert names(client.list(kinds.DeviceClass)) == []


def test_lists_support_selectors_and_pages(client: Any, kinds: Any, lightkube: Any) -> None:
    """Selectors in lightkube's format, pages, deletecollection."""
    operators = lightkube.operators
    for name, tier in (("a", "one"), ("b", "two"), ("c", "three"), ("d", None)):
        client.create(kinds.DeviceClass.from_dict(device_class(name, labels={"tier": tier} if tier else {})))
    selections: list[tuple[Any, list[str]]] = [
        ({"tier": "one"}, ["a"]),
        ({"tier": operators.in_(["one", "two"])}, ["a", "b"]),
        ({"tier": operators.not_in(["one", "two"])}, ["c", "d"]),
        ({"tier": operators.not_equal("one")}, ["b", "c", "d"]),
        ({"tier": operators.exists()}, ["a", "b", "c"]),
        ({"tier": operators.not_exists()}, ["d"]),
    ]
    for labels, expected in selections:
        assert names(client.list(kinds.DeviceClass, labels=labels)) == expected
    assert names(client.list(kinds.DeviceClass, fields={"metadata.name": operators.not_equal("a")})) == ["b", "c", "d"]
    paged = client.list(kinds.DeviceClass, chunk_size=2)
    assert names(paged) == ["a", "b", "c", "d"]
    assert int(paged.resourceVersion) > 1
    client.deletecollection(kinds.DeviceClass)
    assert names(client.list(kinds.DeviceClass)) == []


def test_patch_types_are_accepted_and_apply_conflicts_until_forced(client: Any, kinds: Any, lightkube: Any) -> None:
    """Each patch type; two managers of one field."""
    patch_types = lightkube.types.PatchType
    body = {"metadata": {"labels": {"new": "1"}}}
    operations = [{"op": "replace", "path": "/metadata/labels", "value": {"new": "1"}}]
    client.create(kinds.DeviceClass.from_dict(device_class("gpu", labels={"old": "1"})))
    for patch_type, patch, labels in (
        (patch_types.STRATEGIC, body, {"old": "1", "new": "1"}),
        (patch_types.JSON, operations, {"new": "1"}),
        (patch_types.MERGE, {"metadata": {"labels": None}}, None),
    ):
        assert client.patch(kinds.DeviceClass, "gpu", patch, patch_type=patch_type).metadata.labels == labels

    def labelled(label: str) -> Any:
        return kinds.DeviceClass.from_dict(device_class("applied", labels={"a": label}))

    assert client.apply(labelled("1"), field_manager="one").metadata.labels == {"a": "1"}
    with pytest.raises(lightkube.ApiError) as error:
        client.apply(labelled("2"), field_manager="two")
    assert error.value.status.details.causes[0].reason == "FieldManagerConflict"
    assert client.apply(labelled("2"), field_manager="two", force=True).metadata.labels == {"a": "2"}


def test_claim_status_is_patched_and_applied(client: Any, kinds: Any) -> None:
    """The status is patched, and applied with the whole object, of which only the status is stored."""
    client.create(kinds.ResourceClaim.from_dict(claim()), namespace="default")
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    client.patch(kinds.ResourceClaim.Status, "one", status, namespace="default")
    found = client.get(kinds.ResourceClaim, "one", namespace="default")
    assert found.status.allocation.devices.results[0].device == "gpu-0"
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R"}
    device = {"driver": "d.example.com", "pool": "p", "device": "gpu-0", "conditions": [condition | {"message": ""}]}
    mine = {**claim(), "status": {"devices": [device]}}
    applied = client.apply(kinds.ResourceClaim.Status.from_dict(mine), "one", namespace="default", field_manager="d")
    assert applied.status.devices[0].conditions[0].type == "Ready"
    assert client.get(kinds.ResourceClaim, "one", namespace="default").status.allocation == found.status.allocation


def test_watch_starts_at_version_and_reports_expiry(client: Any, kinds: Any, lightkube: Any) -> None:
    """From a given version; a version that is too old is 410."""
    made = client.create(kinds.DeviceClass.from_dict(device_class("a")))
    client.delete(kinds.DeviceClass, "a")
    client.create(kinds.DeviceClass.from_dict(device_class("b")))
    seen = []
    for event, obj in client.watch(kinds.DeviceClass, resource_version=made.metadata.resourceVersion):
        seen.append((event, obj.metadata.name))
        if len(seen) == 2:
            break
    assert seen == [("DELETED", "a"), ("ADDED", "b")]
    with pytest.raises(lightkube.ApiError) as error:
        next(iter(client.watch(kinds.DeviceClass, resource_version=OLD)))
    assert error.value.status.code == 410


def test_generic_resources_are_created_patched_listed_and_deleted(client: Any, lightkube: Any, api: Http) -> None:
    """Resources of a definition that lightkube reads from the server, and a kind of the prototype."""
    generic, merge = lightkube.generic_resource, lightkube.types.PatchType.MERGE
    api.ok("POST", DEFINITIONS, definition())
    generic.load_in_cluster_generic_resources(client)
    kind = generic.get_generic_resource("example.com/v1alpha1", "Driver")
    made = client.create(kind.from_dict(driver("a", {"type": "gpu"})), namespace="default")
    assert made["spec"] == {"type": "gpu", "n": 3}
    patched = client.patch(kind.Status, "a", {"status": {"x": 4}}, namespace="default", patch_type=merge)
    assert patched["status"] == {"x": 4}
    assert names(client.list(kind, namespace="*")) == ["a"]
    applied = client.apply(kind.from_dict(driver("b", {"type": "x"})), namespace="default", field_manager="m")
    assert applied.metadata.managedFields[0].operation == "Apply"
    client.delete(kind, "a", namespace="default")
    pools = generic.create_global_resource("devmgmtproto.k8s.io", "v1alpha1", "DevicePool", "devicepools")
    pool = pools(metadata={"name": "p"}, spec={"driver": "d", "devices": []})
    assert client.create(pool)["spec"]["driver"] == "d"
    assert names(client.list(pools)) == ["p"]


async def test_async_client_writes_and_watches(lightkube: Any, config: Any, kinds: Any, api: Http) -> None:
    """The same protocol with another HTTP library."""
    client = lightkube.AsyncClient(config=config, field_manager="me")
    try:
        await client.create(kinds.DeviceClass.from_dict(device_class("a")))
        assert [each.metadata.name async for each in client.list(kinds.DeviceClass)] == ["a"]
        watch = client.watch(kinds.DeviceClass)
        assert (await anext(watch))[1].metadata.name == "a"
        await client.patch(kinds.DeviceClass, "a", {"metadata": {"labels": {"x": "1"}}})
        event, obj = await anext(watch)
        assert (event, obj.metadata.labels) == ("MODIFIED", {"x": "1"})
        await watch.aclose()
        await client.delete(kinds.DeviceClass, "a")
        with pytest.raises(lightkube.ApiError, match='"a" not found'):
            await client.get(kinds.DeviceClass, "a")
    finally:
        await client.close()
