"""From a pod to the planned writes: claims by reference and from templates, configuration, amounts, admin access."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.k8srm import K8srmError, read_files
from controlplane.k8srm.load import ObjectName, cluster_of
from controlplane.k8srm.plan import Plan, plan
from controlplane.k8srm.types import write
from tests.controlplane.k8srm.build import Plain, allocated_claim, claim, device, device_class, pool, resource

C = {"deviceClass": "c"}
CLASS = device_class("c", "d")
PAIR = pool("p", "n", [device("a"), device("b")])
CONFIG = {"apiVersion": "foozer.example.com/v1alpha1", "kind": "FoozerConfig"}


def pod(*entries: Plain, uses: tuple[str, ...] = (), **spec: Any) -> Plain:
    containers = [{"name": "main", "image": "pause", "devices": [{"name": name} for name in uses]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "default", "uid": "u1"},
        "spec": {"containers": containers, "deviceClaims": list(entries), **spec},
    }


def config(name: str, namespace: str) -> Plain:
    return {**CONFIG, "metadata": {"name": name, "namespace": namespace}, "spec": {"superfast": True}}


def planned(*objects: Plain, **options: Any) -> Plan:
    cluster = cluster_of(objects)
    return plan(cluster.pods["default/pod"], cluster, cluster.others.get, **options)


def statuses(outcome: Plan) -> list[Any]:
    return [write(each.claim).get("status") for each in outcome.claims]


def test_referenced_claim_is_allocated() -> None:
    outcome = planned(CLASS, PAIR, claim("x", C), pod({"name": "gpu", "claimName": "x"}, uses=("gpu",)))
    assert outcome.outcome.node == "n"
    assert statuses(outcome) == [
        {"allocations": [{"devicePoolName": "p", "deviceName": "a"}], "podNames": ["pod"]},
    ]
    assert not outcome.claims[0].is_new


def test_template_is_copied_for_pod() -> None:
    outcome = planned(CLASS, PAIR, claim("x", C), pod({"name": "gpu", "claimTemplateName": "x"}))
    made = outcome.claims[0]
    assert made.is_new
    assert (made.claim.metadata.name, made.claim.metadata.namespace) == ("pod-gpu", "default")
    assert [(owner.kind, owner.uid) for owner in made.claim.metadata.owner_references] == [("Pod", "u1")]
    assert made.claim.status.pod_names == ("pod",)


def test_inline_claim_is_allocated() -> None:
    outcome = planned(CLASS, PAIR, pod({"name": "gpu", "claim": {"claims": [C]}}))
    assert outcome.claims[0].claim.metadata.name == "pod-gpu"
    assert len(outcome.claims[0].claim.status.allocations) == 1


def test_existing_claim_of_pod_is_reused() -> None:
    made = claim("pod-gpu", C)
    made["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "u1"}]
    again = planned(CLASS, PAIR, made, pod({"name": "gpu", "claim": {"claims": [C]}}))
    assert not again.claims[0].is_new
    made["metadata"]["ownerReferences"][0]["uid"] = "u2"
    with pytest.raises(K8srmError, match="DeviceClaim pod-gpu exists, but was not made for the pod"):
        planned(CLASS, PAIR, made, pod({"name": "gpu", "claim": {"claims": [C]}}))


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"name": "gpu"}, "needs exactly one of"),
        ({"name": "gpu", "claimName": "x", "claimTemplateName": "x"}, "needs exactly one of"),
        ({"name": "gpu", "claimName": "y"}, "DeviceClaim y not found"),
        ({"name": "gpu", "privilegedClaimName": "y"}, "DevicePrivilegedClaim y not found"),
        ({"name": "gpu", "claim": {"claims": [{}]}}, "needs deviceClass or deviceType"),
        ({"name": "gpu", "claimName": "old"}, "DeviceClaim default/old: spec.claims: requests no devices"),
        ({"name": "gpu", "claimName": 1}, "cannot unmarshal"),
    ],
)
def test_invalid_device_claim_entry_is_refused(entry: Plain, text: str) -> None:
    with pytest.raises(K8srmError, match=text):
        planned(CLASS, PAIR, claim("x", C), claim("old", deviceClass="c"), pod(entry))


def test_claims_are_read_from_annotation() -> None:
    listed = pod()
    del listed["spec"]["deviceClaims"]
    listed["metadata"]["annotations"] = {"devmgmtproto.k8s.io/device-claims": "[{name: gpu, claimName: x}]"}
    assert len(planned(CLASS, PAIR, claim("x", C), listed).claims) == 1
    for text, reason in (("{", "did not find expected node content"), ("gpu", "must be a list")):
        listed["metadata"]["annotations"] = {"devmgmtproto.k8s.io/device-claims": text}
        with pytest.raises(K8srmError, match=reason):
            planned(CLASS, PAIR, claim("x", C), listed)


def test_container_with_unlisted_claim_is_refused() -> None:
    with pytest.raises(K8srmError, match="container main uses device claim nic: no such entry"):
        planned(CLASS, PAIR, claim("x", C), pod({"name": "gpu", "claimName": "x"}, uses=("nic",)))


def test_pod_without_claims_gets_first_node() -> None:
    outcome = planned(PAIR, pod())
    assert (outcome.outcome.node, outcome.claims) == ("n", ())


def test_bound_pod_is_refused() -> None:
    with pytest.raises(K8srmError, match="pod pod is bound to node m already"):
        planned(PAIR, pod(nodeName="m"))


def test_configuration_is_copied_into_status() -> None:
    objects = [
        device_class("c", "d", configs=[{**CONFIG, "namespace": "vendor", "name": "fast"}]),
        PAIR,
        config("fast", "vendor"),
        config("mine", "default"),
        claim("x", {**C, "configs": [{**CONFIG, "name": "mine"}]}),
        pod({"name": "gpu", "claimName": "x"}),
    ]
    (status,) = statuses(planned(*objects))
    assert status["classConfigs"] == [config("fast", "vendor")]
    assert status["claimConfigs"] == [config("mine", "default")]


def test_configuration_of_unused_alternative_is_ignored() -> None:
    choice = {"oneOf": [{**C, "requests": {"count": 9}, "configs": [{**CONFIG, "name": "gone"}]}, C]}
    (status,) = statuses(planned(CLASS, PAIR, claim("x", choice), pod({"name": "gpu", "claimName": "x"})))
    assert "claimConfigs" not in status


def test_claim_configuration_of_other_namespace_is_refused() -> None:
    wanted = {**C, "configs": [{**CONFIG, "name": "fast"}]}
    with pytest.raises(K8srmError, match="claim x refers to FoozerConfig default/fast"):
        planned(CLASS, PAIR, config("fast", "vendor"), claim("x", wanted), pod({"name": "gpu", "claimName": "x"}))


def test_missing_class_configuration_is_refused() -> None:
    faulty = device_class("c", "d", configs=[{**CONFIG, "namespace": "vendor", "name": "fast"}])
    with pytest.raises(K8srmError, match=r"device class c refers to FoozerConfig vendor/fast .* create it first"):
        planned(faulty, PAIR, claim("x", C), pod({"name": "gpu", "claimName": "x"}))


def test_amount_is_written_in_format_of_capacity() -> None:
    one = pool("p", "n", [device("a", resources=[resource("memory", "80Gi", "1Gi"), resource("share", "1000m")])])
    wanted = {**C, "requests": {"memory": "1500Mi"}}
    (status,) = statuses(planned(CLASS, one, claim("x", wanted), pod({"name": "gpu", "claimName": "x"})))
    assert status["allocations"][0]["allocations"] == [{"name": "memory", "allocation": "2Gi"}]


def test_admin_access_is_recorded_in_status() -> None:
    privileged = claim("x", C, kind="DevicePrivilegedClaim")
    outcome = planned(CLASS, PAIR, privileged, pod({"name": "gpu", "privilegedClaimName": "x"}))
    (status,) = statuses(outcome)
    assert status["allocations"][0]["adminAccess"] is True


def test_allocated_claim_keeps_its_devices_for_another_pod() -> None:
    taken = allocated_claim("x", ("p", "b", {}))
    taken["status"]["podNames"] = ["other"]
    elsewhere = pool("first", "m", [device("z")])
    outcome = planned(CLASS, elsewhere, PAIR, taken, pod({"name": "gpu", "claimName": "x"}))
    assert outcome.outcome.node == "n"
    assert statuses(outcome)[0]["podNames"] == ["other", "pod"]
    assert outcome.claims[0].claim.status.allocations[0].device_name == "b"


def test_claims_allocated_on_different_nodes_leave_no_node() -> None:
    pools = [PAIR, pool("q", "m", [device("z")])]
    both = pod({"name": "a", "claimName": "x"}, {"name": "b", "claimName": "y"})
    outcome = planned(CLASS, *pools, allocated_claim("x", ("p", "b", {})), allocated_claim("y", ("q", "z", {})), both)
    assert outcome.outcome.node is None
    assert outcome.conflicts == ("claim x is allocated on node n", "claim y is allocated on node m")


def test_allocation_from_missing_pool_is_refused() -> None:
    with pytest.raises(K8srmError, match="has a device of pool old, which is gone"):
        planned(CLASS, PAIR, allocated_claim("x", ("old", "b", {})), pod({"name": "gpu", "claimName": "x"}))


def test_unreadable_object_is_named_in_error() -> None:
    with pytest.raises(K8srmError, match=r"DevicePool bad: spec\.devices"):
        cluster_of([pool("bad", "n", [7])])  # type: ignore[list-item]  # the mistake


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("items: [1]", "not an object: 1"),
        ("- 1", "not an object: 1"),
        ("{apiVersion: v1, kind: Pod, metadata: 5}", "metadata: json: cannot unmarshal number"),
    ],
)
def test_file_with_invalid_object_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(text)
    with pytest.raises(K8srmError, match=problem):
        read_files([path])


def test_object_of_another_kind_is_kept_by_name() -> None:
    name = ObjectName("foozer.example.com/v1alpha1", "FoozerConfig", "vendor", "fast")
    assert str(name) == "FoozerConfig vendor/fast"
    assert cluster_of([config("fast", "vendor")]).others == {name: config("fast", "vendor")}
