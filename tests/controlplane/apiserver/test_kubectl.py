"""A real kubectl with our server: cases that the recorded session does not contain."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.apiserver.running import CLASSES, Kubectl, Running, claim, device_class

_CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu, labels: {tier: a}}
spec:
  selectors:
  - cel: {expression: device.driver == "gpu.example.com"}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server for all tests of this file. Each test removes what it created."""
    with Running(collect_after=0.0) as found:
        yield found


@pytest.fixture(scope="module")
def kube(kubectl: str, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl in a folder with a manifest."""
    folder = tmp_path_factory.mktemp("kubectl")
    (folder / "class.yaml").write_text(_CLASS)
    return Kubectl(kubectl, running.kubeconfig(folder / "config"), folder)


def test_explain_prints_kinds_and_fields(kube: Kubectl) -> None:
    """kubectl finds kinds and fields in the schema."""
    text = kube.ok("explain", "deviceclass.spec")
    assert "GROUP:      resource.k8s.io" in text
    assert "extendedResourceName\t<string>" in text
    assert "selectors\t<[]Object>" in text
    assert "suitableNodes" in text
    assert "no description" not in text
    assert "FIELD: reservedFor <[]Object>" in kube.ok("explain", "resourceclaim.status.reservedFor")
    wrong = kube.run("explain", "deviceclass.spec.nope")
    assert 'field "nope" does not exist' in wrong.stderr


def test_apply_creates_known_kinds_beside_unknown_one(kube: Kubectl, tmp_path: Path) -> None:
    """kubectl searches for the kind in the OpenAPI v2 document, which it reads as protobuf."""
    one = "apiVersion: v1\nkind: {}\nmetadata: {{name: {}}}\n"
    (tmp_path / "both.yaml").write_text("---\n".join((one.format("ConfigMap", "there"), one.format("Nope", "none"))))
    applied = kube.run("apply", "-f", str(tmp_path / "both.yaml"))
    assert (applied.returncode, applied.stdout) == (1, "configmap/there created\n")
    assert 'no matches for kind "Nope" in version "v1"' in applied.stderr
    kube.ok("delete", "configmap", "there")
    text = kube.ok("explain", "resourceclaim.spec", "--output=plaintext-openapiv2")
    assert "devices\t<Object>" in text


def test_object_is_edited_replaced_and_deleted_by_file(kube: Kubectl) -> None:
    """The editor is a script that changes a label."""
    kube.ok("apply", "-f", "class.yaml")
    assert "deviceclass.resource.k8s.io/gpu edited" in kube.ok(
        "edit", "deviceclass", "gpu", EDITOR="sed -i s/tier:.a/tier:\\ b/"
    )
    assert kube.ok("get", "deviceclass", "gpu", "-o", "jsonpath={.metadata.labels.tier}") == "b"
    assert kube.ok("replace", "--force", "-f", "class.yaml").endswith("deviceclass.resource.k8s.io/gpu replaced\n")
    assert 'deviceclass.resource.k8s.io "gpu" deleted' in kube.ok("delete", "-f", "class.yaml")


def test_get_watch_prints_existing_objects_and_changes(kube: Kubectl, running: Running) -> None:
    """`get -w` prints existing objects and then changes."""
    with running.http() as api:
        api.ok("POST", CLASSES, device_class("first"))
        process = kube.start("get", "deviceclasses", "-w")
        assert process.stdout is not None
        try:
            assert process.stdout.readline().split() == ["NAME", "AGE"]
            assert process.stdout.readline().split()[0] == "first"
            api.ok("POST", CLASSES, device_class("second"))
            assert process.stdout.readline().split()[0] == "second"
        finally:
            process.terminate()
            process.communicate()
        api.ok("DELETE", CLASSES)


def test_delete_cascades_to_dependents_unless_orphaned(kube: Kubectl, running: Running) -> None:
    """Dependents are deleted first, in the background, or not at all."""
    with running.http() as api:
        for cascade, stays in (("foreground", False), ("background", False), ("orphan", True)):
            owner = api.ok("POST", CLASSES, device_class("owner"))["metadata"]
            reference = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "name": "owner",
                "uid": owner["uid"],
            }
            api.ok("POST", CLASSES, device_class("child", ownerReferences=[reference | {"blockOwnerDeletion": True}]))
            kube.ok("delete", "deviceclass", "owner", f"--cascade={cascade}")
            if stays:
                assert kube.ok("delete", "deviceclass", "child")
            else:
                kube.ok("wait", "deviceclass/child", "--for=delete", "--timeout=10s")


def test_core_objects_are_created_printed_and_deleted(kube: Kubectl, tmp_path: Path) -> None:
    """Namespaces, config maps, secrets and pods, as kubectl shows them."""
    meta = "metadata: {name: x, namespace: work}"
    (tmp_path / "core.yaml").write_text(
        f"apiVersion: v1\nkind: ConfigMap\n{meta}\ndata: {{a: '1'}}\n"
        f"---\napiVersion: v1\nkind: Secret\n{meta}\ndata: {{a: MQ==}}\n"
        f"---\napiVersion: v1\nkind: Pod\n{meta}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    )
    kube.ok("create", "namespace", "work")
    kube.ok("create", "-f", str(tmp_path / "core.yaml"))
    shown = kube.ok("get", "cm,secret", "-n", "work", "--no-headers").split()
    assert (shown[:2], shown[3:6]) == (["configmap/x", "1"], ["secret/x", "Opaque", "1"])
    assert kube.ok("get", "pods", "-n", "work").splitlines()[1].split()[:3] == ["x", "0/1", "Pending"]
    kube.ok("create", "configmap", "c", "-n", "work", "--from-literal=a=ä")
    assert kube.ok("get", "configmap", "c", "-n", "work", "-o", "jsonpath={.data.a}") == "ä"
    kube.ok("create", "secret", "generic", "s", "-n", "work", "--from-literal=a=1")
    assert kube.ok("get", "secret", "s", "-n", "work", "-o", "jsonpath={.data.a}{.type}") == "MQ==Opaque"
    kube.ok("delete", "namespace", "work")
    assert "NotFound" in kube.run("get", "namespace", "work").stderr


def test_custom_resource_is_defined_applied_and_printed(kube: Kubectl, tmp_path: Path) -> None:
    """A definition, its objects, and `kubectl explain`."""
    import yaml

    from tests.controlplane.apiserver.definitions.test_definitions import definition, driver

    (tmp_path / "crd.yaml").write_text(yaml.safe_dump(definition()))
    (tmp_path / "driver.yaml").write_text(yaml.safe_dump(driver("a", {"type": "gpu"})))
    kube.ok("apply", "-f", str(tmp_path / "crd.yaml"))
    kube.ok("wait", "--for=condition=Established", "crd/drivers.example.com", "--timeout=10s")
    assert kube.ok("apply", "-f", str(tmp_path / "driver.yaml")) == "driver.example.com/a created\n"
    assert kube.ok("apply", "-f", str(tmp_path / "driver.yaml")) == "driver.example.com/a unchanged\n"
    assert kube.ok("get", "dr").splitlines()[1].split() == ["a", "gpu"]
    assert "maxLength" not in kube.ok("explain", "drivers.spec")
    kube.ok("delete", "crd", "drivers.example.com")
    assert kube.run("get", "drivers").returncode == 1


def test_claim_status_is_set_by_server_side_apply(kube: Kubectl, running: Running, tmp_path: Path) -> None:
    """The way in which a driver reports."""
    with running.http() as api:
        api.ok("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim())
        result = "{request: gpu, driver: d.example.com, pool: p, device: d}"
        (tmp_path / "status.yaml").write_text(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: one, namespace: default}\n"
            f"status: {{allocation: {{devices: {{results: [{result}]}}}}}}\n"
        )
        kube.ok("apply", "--server-side", "--subresource=status", "-f", str(tmp_path / "status.yaml"))
        assert "allocated" in kube.ok("get", "resourceclaims")
        kube.ok("delete", "resourceclaim", "one")
