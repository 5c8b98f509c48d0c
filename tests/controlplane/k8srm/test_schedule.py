"""Scheduling against a server over HTTP: reads, writes, and their reversal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controlplane.k8srm import K8srmError
from controlplane.k8srm.client_api import ClientApi
from controlplane.k8srm.load import ObjectName
from controlplane.k8srm.schedule import schedule
from controlplane.k8srm.types import API_VERSION
from nodeplug.commands.k8srm import k8srm
from resourceapi.client import Credentials, Refused, from_kubeconfig
from resourceapi.client.blocking import Client
from tests.controlplane.apiserver.running import Running
from tests.controlplane.k8srm.build import Plain, claim, device, device_class, pool

C = {"deviceClass": "c"}
CLASS = device_class("c", "d")
PAIR = pool("p", "n", [device("a"), device("b")])


def pod(name: str, *entries: Plain) -> Plain:
    spec = {"containers": [{"name": "main", "image": "pause"}], "deviceClaims": list(entries)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


@pytest.fixture
def server() -> Iterator[Running]:
    """A server with the prototype's kinds."""
    with Running() as running:
        yield running


@pytest.fixture
def kubeconfig(server: Running, tmp_path: Path) -> Path:
    """A kubeconfig for the server."""
    return server.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    """A client of the server."""
    made = Client(from_kubeconfig(kubeconfig))
    yield made
    made.close()


class Cluster:
    """Shorthands for the objects on the server."""

    def __init__(self, client: Client) -> None:
        self.api = ClientApi(client)

    def create(self, *values: Plain) -> None:
        for value in values:
            self.api.create(value)

    def claim(self, name: str, kind: str = "DeviceClaim") -> Plain | None:
        return self.api.get(ObjectName(API_VERSION, kind, "default", name))

    def status(self, name: str) -> Any:
        found = self.claim(name)
        return None if found is None else found.get("status")

    def node_of(self, name: str) -> Any:
        found = self.api.get(ObjectName("v1", "Pod", "default", name))
        assert found is not None
        return found["spec"].get("nodeName")


@pytest.fixture
def cluster(client: Client) -> Cluster:
    """The server's objects: a class, a pool with two devices, and a claim."""
    made = Cluster(client)
    made.create(CLASS, PAIR, claim("x", C))
    return made


def test_claim_status_is_written_and_pod_is_bound(cluster: Cluster) -> None:
    cluster.create(pod("one", {"name": "gpu", "claimName": "x"}))
    schedule(cluster.api, "one")
    assert cluster.node_of("one") == "n"
    assert cluster.status("x") == {
        "allocations": [{"devicePoolName": "p", "deviceName": "a"}],
        "podNames": ["one"],
    }


def test_written_allocations_are_respected_for_later_pods(cluster: Cluster) -> None:
    for name in ("one", "two", "three"):
        cluster.create(pod(name, {"name": "gpu", "claimTemplateName": "x"}))
    assert schedule(cluster.api, "one").outcome.node == "n"
    assert schedule(cluster.api, "two").outcome.node == "n"
    refused = schedule(cluster.api, "three")
    assert refused.outcome.node is None
    assert cluster.claim("three-gpu") is None
    assert cluster.node_of("three") is None
    assert [cluster.status(f"{name}-gpu")["allocations"][0]["deviceName"] for name in ("one", "two")] == ["a", "b"]


def test_second_pod_shares_allocated_claim(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.create(pod(name, {"name": "gpu", "claimName": "x"}))
        schedule(cluster.api, name)
    assert cluster.status("x")["podNames"] == ["one", "two"]
    assert len(cluster.status("x")["allocations"]) == 1


def test_configuration_of_any_kind_is_copied(cluster: Cluster) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}}
    foozer = {
        "apiVersion": "foozer.example.com/v1alpha1",
        "kind": "FoozerConfig",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {"superfast": True},
    }
    references = [{"apiVersion": each["apiVersion"], "kind": each["kind"]} for each in (config, foozer)]
    wanted = {**C, "configs": [{**references[0], "name": "m"}, {**references[1], "name": "f"}]}
    cluster.create(config, foozer, claim("y", wanted), pod("one", {"name": "gpu", "claimName": "y"}))
    schedule(cluster.api, "one")
    copies = cluster.status("y")["claimConfigs"]
    assert [each["metadata"]["name"] for each in copies] == ["m", "f"]
    assert "managedFields" not in copies[0]["metadata"]
    assert copies[1]["spec"] == {"superfast": True}


@pytest.mark.parametrize("kind", ["FoozerConfig", "Unheard"])
def test_missing_configuration_changes_nothing(cluster: Cluster, kind: str) -> None:
    wanted = {**C, "configs": [{"apiVersion": "foozer.example.com/v1alpha1", "kind": kind, "name": "f"}]}
    cluster.create(claim("y", wanted), pod("one", {"name": "gpu", "claimName": "y"}))
    with pytest.raises(K8srmError, match=f"claim y refers to {kind} default/f .* create it first"):
        schedule(cluster.api, "one")
    assert (cluster.node_of("one"), cluster.status("y")) == (None, None)


class RivalBindingApi(ClientApi):
    """Another client binds the pod first."""

    def bind(self, namespace: str, pod: str, node: str) -> None:
        super().bind(namespace, pod, "elsewhere")
        super().bind(namespace, pod, node)


def test_writes_are_reverted_when_binding_fails(cluster: Cluster, client: Client) -> None:
    both = [{"name": "gpu", "claimName": "x"}, {"name": "other", "claimTemplateName": "x"}]
    cluster.create(pod("one", *both))
    with pytest.raises(
        K8srmError, match=r'cannot bind pod default/one to node n: .*already assigned to node "elsewhere"'
    ):
        schedule(RivalBindingApi(client), "one")
    assert not cluster.status("x")
    assert cluster.claim("one-other") is None


class ConflictingWriteApi(ClientApi):
    """Another client changes a claim between the read and the write."""

    def update_status(self, value: Plain) -> Plain:
        name = ObjectName(API_VERSION, "DeviceClaim", "default", value["metadata"]["name"])
        current = self.get(name)
        assert current is not None
        if current["metadata"]["resourceVersion"] == value["metadata"]["resourceVersion"]:
            super().update_status({**current, "status": {"podNames": ["other"]}})
        return super().update_status(value)


def test_concurrently_changed_claim_is_a_conflict(cluster: Cluster, client: Client) -> None:
    cluster.create(pod("one", {"name": "gpu", "claimName": "x"}))
    with pytest.raises(K8srmError, match="the object has been modified"):
        schedule(ConflictingWriteApi(client), "one")
    assert cluster.status("x") == {"podNames": ["other"]}
    assert cluster.node_of("one") is None


class LostAnswerApi(ClientApi):
    """The request is executed but its answer is lost: for the binding, or for the status of a claim."""

    def __init__(self, client: Client, lost_answer: str) -> None:
        super().__init__(client)
        self._lost_answer = lost_answer

    def bind(self, namespace: str, pod: str, node: str) -> None:
        super().bind(namespace, pod, node)
        if self._lost_answer == "bind":
            raise K8srmError("connection lost")

    def update_status(self, value: Plain) -> Plain:
        stored = super().update_status(value)
        if self._lost_answer == "status" and value["status"]:
            raise K8srmError("connection lost")
        return stored


def test_binding_with_lost_answer_succeeds(cluster: Cluster, client: Client) -> None:
    cluster.create(pod("one", {"name": "gpu", "claimName": "x"}))
    schedule(LostAnswerApi(client, "bind"), "one")
    assert cluster.node_of("one") == "n"
    assert cluster.status("x")["podNames"] == ["one"]


def test_status_write_with_lost_answer_is_reverted(cluster: Cluster, client: Client) -> None:
    cluster.create(pod("one", {"name": "gpu", "claimName": "x"}))
    with pytest.raises(K8srmError, match="connection lost"):
        schedule(LostAnswerApi(client, "status"), "one")
    assert not cluster.status("x")
    assert cluster.node_of("one") is None


class RivalAllocationApi(ClientApi):
    """Another scheduler allocates the same device to another pod's claim."""

    def update_status(self, value: Plain) -> Plain:
        other = self.get(ObjectName(API_VERSION, "DeviceClaim", "default", "other"))
        assert other is not None
        if "status" not in other:
            super().update_status({**other, "status": {"allocations": value["status"]["allocations"]}})
        return super().update_status(value)


def test_concurrent_allocation_of_same_device_is_reverted(cluster: Cluster, client: Client) -> None:
    cluster.create(claim("other", C), pod("one", {"name": "gpu", "claimName": "x"}))
    with pytest.raises(K8srmError, match="DeviceClaim default/other was allocated at the same time; try again"):
        schedule(RivalAllocationApi(client), "one")
    assert not cluster.status("x")
    assert cluster.node_of("one") is None
    schedule(cluster.api, "one")
    assert cluster.status("x")["allocations"][0]["deviceName"] == "b"


def test_node_objects_determine_considered_nodes(cluster: Cluster) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m"}})
    cluster.create(pod("one", {"name": "gpu", "claimName": "x"}))
    assert [each.node for each in schedule(cluster.api, "one").outcome.results] == ["m"]


def test_create_with_wrong_field_type_is_refused(cluster: Cluster) -> None:
    with pytest.raises(K8srmError, match=r"spec\.devices in body must be of type array"):
        cluster.create({**PAIR, "metadata": {"name": "q"}, "spec": {"devices": "many"}})


def test_unknown_null_and_number_fields_are_preserved(cluster: Cluster) -> None:
    tolerant = claim("y", {**C, "deviceType": None, "requests": {"count": 2}}, extra=[1])
    cluster.create(tolerant, pod("one", {"name": "gpu", "claimName": "y"}))
    found = cluster.claim("y")
    assert found is not None
    assert found["spec"]["extra"] == [1]
    assert schedule(cluster.api, "one").outcome.node == "n"
    again = cluster.claim("y")
    assert again is not None
    assert again["spec"] == found["spec"]


def test_server_without_prototype_kinds_is_reported() -> None:
    with Running(definitions=()) as plain:
        api = ClientApi(Client(lambda: Credentials(server=plain.url, token=plain.server.token)))
        api.create(pod("one"))
        with pytest.raises(K8srmError, match="the server has no DeviceDriver of devmgmtproto"):
            schedule(api, "one")


# the command-line interface


def test_command_prints_report_and_binds_pod(cluster: Cluster, kubeconfig: Path) -> None:
    cluster.create(pod("one", {"name": "gpu", "claimName": "x"}))
    done = CliRunner().invoke(k8srm, ["schedule", "--kubeconfig", str(kubeconfig), "one"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        "ALLOCATIONS\n-----------\n- deviceCount: 1\n  devicePoolName: p\n\n"
        "NODE RESULTS\n------------\nn: satisfied all claims with score 100\n"
    )
    assert cluster.node_of("one") == "n"


@pytest.mark.parametrize("how", [{"args": ["-v"]}, {"env": {"VERBOSE": "y"}}])
def test_verbose_command_prints_pool_sets(cluster: Cluster, kubeconfig: Path, how: dict[str, Any]) -> None:
    cluster.create(pod("one", {"name": "gpu", "claimName": "x"}))
    arguments = ["schedule", "--kubeconfig", str(kubeconfig), *how.get("args", []), "default/one"]
    done = CliRunner().invoke(k8srm, arguments, env=how.get("env"))
    assert "- DeviceClaimResults:\n  - best: 0\n    claimName: x\n    poolSetResults:\n" in done.stdout


def test_command_fails_when_no_node_fits(cluster: Cluster, kubeconfig: Path) -> None:
    cluster.create(claim("many", {**C, "requests": {"count": 3}}), pod("one", {"name": "gpu", "claimName": "many"}))
    done = CliRunner().invoke(k8srm, ["schedule", "--kubeconfig", str(kubeconfig), "one"])
    assert done.exit_code == 1
    assert done.stdout.startswith("ALLOCATIONS\n-----------\nnull\n")
    assert done.stdout.endswith("n: could not satisfy these claims: many\n")
    assert done.stderr == "n: many: unable to satisfy 1 of 3 device requests\n"
    assert not cluster.status("many")


@pytest.mark.parametrize(
    ("name", "text"),
    [("missing", "Error: pod default/missing not found\n"), ("vendor/one", "Error: pod vendor/one not found\n")],
)
def test_command_fails_when_pod_is_missing(cluster: Cluster, kubeconfig: Path, name: str, text: str) -> None:
    done = CliRunner().invoke(k8srm, ["schedule", "--kubeconfig", str(kubeconfig), name])
    assert (done.exit_code, done.stderr) == (1, text)


def test_command_fails_when_kubeconfig_is_missing(tmp_path: Path) -> None:
    done = CliRunner().invoke(k8srm, ["schedule", "--kubeconfig", str(tmp_path / "none"), "one"])
    assert done.exit_code == 1
    assert "none: " in done.stderr


def test_error_names_refused_operation(cluster: Cluster) -> None:
    with pytest.raises(K8srmError, match=r"cannot create DeviceClaim default/x: 409 AlreadyExists") as refused:
        cluster.create(claim("x", C))
    assert isinstance(refused.value.__cause__, Refused)
