"""The official Python client with our server: the server understands its requests, and it can read the answers."""

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, definition, driver
from tests.controlplane.apiserver.running import APPLY, MERGE, Http, Running, claim, device_class

OLD = "1"
"""A version before the start of the server's history."""
_FUTURE = str(2**62)


@pytest.fixture(scope="module")
def kubernetes() -> Any:
    """The package. Its import is slow. Typed as Any, because most of it has no types."""
    for part in ("dynamic.exceptions", "informer"):
        pytest.importorskip(f"kubernetes.{part}", reason="the official client is not installed")
    return importlib.import_module("kubernetes")


@pytest.fixture(scope="module")
def connection(kubernetes: Any, server: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A connection configured by our kubeconfig."""
    config = server.kubeconfig(tmp_path_factory.mktemp("kubernetes") / "config")
    with kubernetes.config.new_client_from_config(str(config)) as made:
        yield made


@pytest.fixture
def resource(kubernetes: Any, connection: Any, api: Http) -> Any:
    """The resource.k8s.io/v1 API of a server without objects."""
    return kubernetes.client.ResourceV1Api(connection)


@pytest.fixture
def dynamic(kubernetes: Any, connection: Any, api: Http, tmp_path: Path) -> Any:
    """The client that learns kinds from discovery; it has not read discovery yet."""
    return kubernetes.dynamic.DynamicClient(connection, cache_file=str(tmp_path / "discovery"))


def names(found: Any) -> list[str]:
    """The names of a list's items."""
    return [item.metadata.name for item in found.items]


async def test_asyncio_client_reads_kubeconfig(server: Running, api: Http, tmp_path: Path) -> None:
    """aiohttp refuses a URL with credentials together with a token."""
    aio = pytest.importorskip("kubernetes.aio", reason="the official client has none for asyncio")
    connection = await aio.config.new_client_from_config(str(server.kubeconfig(tmp_path / "config")))
    async with connection:
        assert names(await aio.client.ResourceV1Api(connection).list_device_class()) == []


def test_device_class_is_created_read_replaced_and_deleted(resource: Any, kubernetes: Any) -> None:
    """Create, read, replace, delete, with the client's model classes."""
    models = kubernetes.client
    selector = models.V1DeviceSelector(cel=models.V1CELDeviceSelector(expression='device.driver == "d"'))
    wanted = models.V1DeviceClass(
        metadata=models.V1ObjectMeta(generate_name="gpu-"), spec=models.V1DeviceClassSpec(selectors=[selector])
    )
    assert resource.create_device_class(wanted, dry_run="All").metadata.name.startswith("gpu-")
    made = resource.create_device_class(wanted, field_manager="me", field_validation="Strict")
    name = made.metadata.name
    assert (made.kind, made.metadata.generation, made.metadata.managed_fields[0].manager) == ("DeviceClass", 1, "me")
    assert made.metadata.creation_timestamp.tzinfo is not None
    assert resource.read_device_class(name) == made
    made.spec.extended_resource_name = "example.com/gpu"
    replaced = resource.replace_device_class(name, made)
    assert (replaced.metadata.generation, replaced.spec.extended_resource_name) == (2, "example.com/gpu")
    options = models.V1DeleteOptions(preconditions=models.V1Preconditions(uid="other"))
    with pytest.raises(models.ApiException) as error:
        resource.delete_device_class(name, body=options)
    assert error.value.status == 409
    assert resource.delete_device_class(name, propagation_policy="Background").metadata.uid == made.metadata.uid
    assert names(resource.list_device_class()) == []


def test_lists_support_selectors_and_pages(resource: Any) -> None:
    """Selectors and pages."""
    for name, tier in (("a", "one"), ("b", "two"), ("c", "two")):
        resource.create_device_class(device_class(name, labels={"tier": tier}))
    assert names(resource.list_device_class(label_selector="tier=two")) == ["b", "c"]
    assert names(resource.list_device_class(label_selector="tier in (one),tier!=two")) == ["a"]
    assert names(resource.list_device_class(field_selector="metadata.name=b")) == ["b"]
    first = resource.list_device_class(limit=2)
    assert (names(first), first.metadata.remaining_item_count) == (["a", "b"], 1)
    rest = resource.list_device_class(limit=2, _continue=first.metadata._continue)
    assert (names(rest), rest.metadata._continue) == (["c"], None)
    assert rest.metadata.resource_version == first.metadata.resource_version
    resource.delete_collection_device_class(label_selector="tier=two")
    assert names(resource.list_device_class(resource_version="0")) == ["a"]


@pytest.mark.parametrize(
    ("content", "body"),
    [
        ("application/json-patch+json", [{"op": "add", "path": "/metadata/labels", "value": {"new": "1"}}]),
        (MERGE, {"metadata": {"labels": {"new": "1"}}}),
        ("application/strategic-merge-patch+json", {"metadata": {"labels": {"new": "1"}}}),
        (APPLY, device_class("gpu", labels={"new": "1"})),
    ],
    ids=["json", "merge", "strategic", "apply"],
)
def test_every_patch_type_is_accepted(resource: Any, content: str, body: Any) -> None:
    """Each patch type."""
    resource.create_device_class(device_class("gpu"))
    options = {"field_manager": "me"} | ({"force": True} if content == APPLY else {})
    patched = resource.patch_device_class("gpu", body, _content_type=content, **options)
    assert patched.metadata.labels == {"new": "1"}
    entry = next(each for each in patched.metadata.managed_fields if each.manager == "me")
    assert entry.operation == ("Apply" if content == APPLY else "Update")


def test_server_side_apply_conflicts_until_forced(resource: Any, kubernetes: Any) -> None:
    """Two managers of one field."""

    def apply(manager: str, label: str, **options: Any) -> Any:
        body = device_class("gpu", labels={"a": label})
        return resource.patch_device_class("gpu", body, _content_type=APPLY, field_manager=manager, **options)

    assert apply("one", "1").metadata.labels == {"a": "1"}
    with pytest.raises(kubernetes.client.ApiException) as error:
        apply("two", "2")
    assert error.value.status == 409
    (cause,) = json.loads(error.value.body)["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".metadata.labels.a")
    assert apply("two", "2", force=True).metadata.labels == {"a": "2"}


def test_watch_resumes_from_last_event_and_reports_expiry(resource: Any, kubernetes: Any) -> None:
    """From the list's version, then from the last event of the watch; a selector applies; an old version is 410."""
    version = resource.list_device_class().metadata.resource_version
    resource.create_device_class(device_class("a", labels={"x": "1"}))
    resource.create_device_class(device_class("other"))
    watch = kubernetes.watch.Watch()
    options: dict[str, Any] = {"label_selector": "x", "timeout_seconds": 20}
    for event in watch.stream(resource.list_device_class, resource_version=version, **options):
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "a")
        watch.stop()
    resource.patch_device_class("a", {"metadata": {"labels": {"x": "2"}}}, _content_type=MERGE)
    resource.delete_device_class("a")
    seen = []
    for event in watch.stream(resource.list_device_class, resource_version=watch.resource_version, **options):
        seen.append((event["type"], event["object"].metadata.labels["x"]))
        if len(seen) == 2:
            watch.stop()
    assert seen == [("MODIFIED", "2"), ("DELETED", "2")]
    with pytest.raises(kubernetes.client.ApiException) as error:
        list(watch.stream(resource.list_device_class, resource_version=OLD, timeout_seconds=20))
    assert error.value.status == 410


def test_informer_follows_changes(resource: Any, kubernetes: Any) -> None:
    """The client's own list and watch loop."""
    resource.create_device_class(device_class("before"))
    seen: Queue[tuple[str, str]] = Queue()
    informer = kubernetes.informer.SharedInformer(resource.list_device_class)
    for kind in ("ADDED", "DELETED"):
        informer.add_event_handler(kind, lambda obj, kind=kind: seen.put((kind, obj.metadata.name)))
    informer.start()
    try:
        assert seen.get(timeout=20) == ("ADDED", "before")
        resource.create_device_class(device_class("after"))
        assert seen.get(timeout=20) == ("ADDED", "after")
        resource.delete_device_class("before")
        assert seen.get(timeout=20) == ("DELETED", "before")
        assert [obj.metadata.name for obj in informer.cache.list()] == ["after"]
    finally:
        informer.stop()


def test_claim_status_changes_only_through_subresource(resource: Any) -> None:
    """A write of the object does not change the status. A write of the status changes nothing else, not even labels."""
    resource.create_namespaced_resource_claim("default", claim())
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    body = {"metadata": {"labels": {"x": "1"}}, "status": status}
    plain = resource.patch_namespaced_resource_claim("one", "default", body, _content_type=MERGE)
    assert (plain.metadata.labels, plain.status.allocation) == ({"x": "1"}, None)
    body = {"metadata": {"labels": {"x": "2"}}, "status": status}
    allocated = resource.patch_namespaced_resource_claim_status("one", "default", body, _content_type=MERGE)
    assert allocated.status.allocation.devices.results[0].device == "gpu-0"
    assert resource.read_namespaced_resource_claim_status("one", "default").metadata.labels == {"x": "1"}
    allocated.status.reserved_for = [{"resource": "pods", "name": "p", "uid": "u"}]
    reserved = resource.replace_namespaced_resource_claim_status("one", "default", allocated)
    assert reserved.status.reserved_for[0].name == "p"
    assert names(resource.list_resource_claim_for_all_namespaces()) == ["one"]


def test_refused_requests_return_status_and_reason(resource: Any, kubernetes: Any) -> None:
    """Status codes, and bodies with the reason."""
    made = resource.create_device_class(device_class("gpu"))
    resource.patch_device_class("gpu", {"metadata": {"labels": {"x": "1"}}}, _content_type=MERGE)
    wrong = device_class("bad") | {"spec": {"selectors": [{"cel": {"expression": "nope"}}]}}
    refused: list[tuple[int, str, Callable[[], Any]]] = [
        (404, "NotFound", lambda: resource.read_device_class("nope")),
        (409, "AlreadyExists", lambda: resource.create_device_class(device_class("gpu"))),
        (409, "Conflict", lambda: resource.replace_device_class("gpu", made)),
        (422, "Invalid", lambda: resource.create_device_class(wrong)),
        (400, "BadRequest", lambda: resource.list_device_class(label_selector="a=b=c")),
        (410, "Expired", lambda: resource.list_device_class(resource_version=OLD, resource_version_match="Exact")),
        (504, "Timeout", lambda: resource.list_device_class(resource_version=_FUTURE)),
    ]
    for code, reason, request in refused:
        with pytest.raises(kubernetes.client.ApiException) as error:
            request()
        status = json.loads(error.value.body)
        assert (error.value.status, status["kind"], status["code"], status["reason"]) == (code, "Status", code, reason)
    with pytest.raises(kubernetes.client.ApiException) as error:
        resource.create_device_class(wrong)
    (cause,) = json.loads(error.value.body)["details"]["causes"]
    assert cause["field"] == "spec.selectors[0].cel.expression"


def test_core_objects_are_created_and_read(kubernetes: Any, connection: Any, api: Http) -> None:
    """Namespaces, pods and their binding, config maps, secrets, events; versions and groups."""
    core = kubernetes.client.CoreV1Api(connection)
    core.create_namespace({"metadata": {"name": "work"}})
    core.create_namespaced_config_map("work", {"metadata": {"name": "c"}, "data": {"a": "ä"}})
    assert core.read_namespaced_config_map("c", "work").data == {"a": "ä"}
    core.create_namespaced_secret("work", {"metadata": {"name": "s"}, "stringData": {"a": "1"}})
    assert core.read_namespaced_secret("s", "work").data == {"a": "MQ=="}
    containers = {"containers": [{"name": "c", "image": "i"}]}
    core.create_namespaced_pod("work", {"metadata": {"name": "p"}, "spec": containers})
    core.create_node({"metadata": {"name": "node1"}})
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node1"}}
    core.create_namespaced_pod_binding("p", "work", binding, _preload_content=False)
    assert names(core.list_pod_for_all_namespaces(field_selector="spec.nodeName=node1")) == ["p"]
    status = {"status": {"phase": "Running"}}
    assert core.patch_namespaced_pod_status("p", "work", status, _content_type=MERGE).status.phase == "Running"
    assert kubernetes.client.VersionApi(connection).get_code().major == "1"
    groups = [group.name for group in kubernetes.client.ApisApi(connection).get_api_versions().groups]
    assert {
        "apiextensions.k8s.io",
        "events.k8s.io",
        "resource.k8s.io",
        "devmgmtproto.k8s.io",
        "foozer.example.com",
    } <= set(groups)


def test_custom_objects_are_created_patched_listed_and_deleted(kubernetes: Any, connection: Any, api: Http) -> None:
    """A definition, and its objects through the client for arbitrary groups."""
    definitions = kubernetes.client.ApiextensionsV1Api(connection)
    made = definitions.create_custom_resource_definition(definition())
    assert {each.type: each.status for each in made.status.conditions or ()} in ({}, {"Established": "True"})
    read = definitions.read_custom_resource_definition("drivers.example.com")
    assert ("Established", "True") in [(each.type, each.status) for each in read.status.conditions]
    custom = kubernetes.client.CustomObjectsApi(connection)
    where = ("example.com", "v1alpha1", "default", "drivers")
    assert custom.create_namespaced_custom_object(*where, driver("a", {"type": "gpu"}))["spec"]["n"] == 3
    patched = custom.patch_namespaced_custom_object(*where, "a", {"spec": {"n": 4}}, _content_type=MERGE)
    assert (patched["spec"]["n"], patched["metadata"]["generation"]) == (4, 2)
    status = {"status": {"x": 5}}
    assert custom.patch_namespaced_custom_object_status(*where, "a", status, _content_type=MERGE)["status"] == {"x": 5}
    assert [each["metadata"]["name"] for each in custom.list_namespaced_custom_object(*where)["items"]] == ["a"]
    with pytest.raises(kubernetes.client.ApiException) as error:
        custom.create_namespaced_custom_object(*where, driver("b", {"type": 5}))
    assert error.value.status == 422
    assert custom.delete_namespaced_custom_object(*where, "a")["status"] == "Success"
    definitions.delete_custom_resource_definition("drivers.example.com")
    with pytest.raises(kubernetes.client.ApiException) as error:
        custom.list_namespaced_custom_object(*where)
    assert error.value.status == 404


def test_dynamic_client_uses_built_in_and_defined_kinds(dynamic: Any, kubernetes: Any, api: Http) -> None:
    """Built-in kinds in each version, defined kinds, the prototype's kinds; apply, watch, delete."""
    exceptions = kubernetes.dynamic.exceptions
    api.ok("POST", DEFINITIONS, definition())
    classes = dynamic.resources.get(api_version="resource.k8s.io/v1beta1", kind="DeviceClass")
    made = classes.create(body=device_class("gpu") | {"apiVersion": "resource.k8s.io/v1beta1"})
    assert made.apiVersion == "resource.k8s.io/v1beta1"
    assert dynamic.resources.get(api_version="resource.k8s.io/v1", kind="DeviceClass").get(name="gpu").kind
    drivers = dynamic.resources.get(api_version="example.com/v1alpha1", kind="Driver")
    applied = drivers.server_side_apply(
        body=driver("a", {"type": "x"}), name="a", namespace="default", field_manager="me"
    )
    assert (applied.spec.n, applied.metadata.managedFields[0].operation) == (3, "Apply")
    body = driver("a", {"type": "y"}, status={"x": 1}) | {
        "metadata": {"name": "a", "resourceVersion": applied.metadata.resourceVersion}
    }
    assert drivers.replace(body=body, namespace="default").spec.type == "y"
    assert drivers.status.patch(body={"status": {"x": 2}}, name="a", namespace="default", content_type=MERGE)
    with pytest.raises(exceptions.UnprocessibleEntityError):
        drivers.create(body=driver("b", {}), namespace="default")
    for event in drivers.watch(namespace="default", timeout=20):
        assert (event["type"], event["object"].status.x) == ("ADDED", 2)
        break
    pools = dynamic.resources.get(api_version="devmgmtproto.k8s.io/v1alpha1", kind="DevicePool")
    pool = {"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DevicePool", "metadata": {"name": "p"}}
    assert pools.create(body=pool | {"spec": {"driver": "d", "devices": [{"name": "a"}]}}).spec.devices[0].name == "a"
    assert pools.delete(name="p").status == "Success"
    with pytest.raises(exceptions.NotFoundError):
        pools.get(name="p")
