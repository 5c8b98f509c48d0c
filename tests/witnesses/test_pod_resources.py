"""pod-resources as a witness: which holders it names, when an empty list is an answer, and invalid answers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint.holdings import Listed
from grpcunix import Transport
from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.threads import no_free_threads
from tests.witnesses.kubelet import DRIVER, ScriptedKubelet, pod
from witnesses import PodResources, pod_resources

GPU = "example.com/gpu"


@pytest.fixture
async def kubelet(socket_dir: Path) -> AsyncIterator[ScriptedKubelet]:
    made = ScriptedKubelet(socket_dir)
    await made.start()
    yield made
    await made.stop()


def witness_of(kubelet: ScriptedKubelet, *nodes: str) -> PodResources:
    return PodResources(kubelet.socket, lambda resource: resource == GPU, DRIVER, nodes or ("node",))


async def test_list_names_holders_of_units_and_devices_of_claims(kubelet: ScriptedKubelet) -> None:
    kubelet.answer = [
        pod("a", {GPU: ["gpu-0", "gpu-1"], "other.com/gpu": ["gpu-7"]}),
        pod("b", claims={"c": ["gpu-2", "gpu-3/share-1"]}),
    ]
    listed = await witness_of(kubelet).listed()
    assert listed is not None
    assert replace(listed, kubelet=None) == Listed(
        {(GPU, "gpu-0"): "pod/default/a/c", (GPU, "gpu-1"): "pod/default/a/c"},
        {("default", "c"): frozenset({"gpu-2", "gpu-3/share-1"})},
        knows_its_pods=True,
        pods=frozenset({"default/a", "default/b"}),
    )


@pytest.mark.parametrize("transport", ["builtin", "grpcio"])
async def test_list_above_the_default_grpc_limit_is_accepted(kubelet: ScriptedKubelet, transport: Transport) -> None:
    """gRPC limits a message to 4 MiB by default; the list of a node with many pods and devices is longer."""
    ids = [f"{'x' * 100}-{i}" for i in range(50_000)]
    kubelet.answer = [pod("a", {GPU: ids})]
    witness = PodResources(kubelet.socket, lambda resource: resource == GPU, DRIVER, ["node"], transport)
    listed = await witness.listed()
    assert listed is not None, witness.problem
    assert len(listed.units) == len(ids)


async def test_long_list_is_read_without_a_free_thread(kubelet: ScriptedKubelet) -> None:
    ids = [f"gpu-{'x' * 100}-{i}" for i in range(1_000)]
    kubelet.answer = [pod("a", {GPU: ids})]
    with_thread = await witness_of(kubelet).listed()
    async with no_free_threads():
        assert await witness_of(kubelet).listed() == with_thread is not None


async def test_claim_shared_by_pods_has_the_devices_of_all_pods(kubelet: ScriptedKubelet) -> None:
    kubelet.answer = [pod("a", claims={"c": ["gpu-0"]}), pod("b", claims={"c": ["gpu-1"]})]
    listed = await witness_of(kubelet).listed()
    assert listed is not None
    assert listed.claims == {("default", "c"): frozenset({"gpu-0", "gpu-1"})}


async def test_kubelet_knows_its_pods_after_listing_an_api_server_pod(kubelet: ScriptedKubelet) -> None:
    witness = witness_of(kubelet)

    async def knows() -> bool:
        listed = await witness.listed()
        assert listed is not None
        return listed.knows_its_pods

    assert not await knows()
    kubelet.answer = [pod("etcd-node"), pod("kube-apiserver-node")]  # static pods, which the kubelet reads from files
    assert not await knows()
    kubelet.answer = [pod("etcd-node"), pod("web-1")]
    assert await knows()
    kubelet.answer = []  # the last pod has ended
    assert await knows()
    kubelet.socket.chmod(0o666)  # it is the same kubelet, whoever changes its socket's rights
    assert await knows()
    await kubelet.restart()
    assert not await knows()


class RestartingKubelet(ScriptedKubelet):
    """A kubelet that restarts between our check of its socket and its answer, and lists no pod at first."""

    async def list(
        self, request: podresources.ListPodResourcesRequest, context: object
    ) -> podresources.ListPodResourcesResponse | bytes:
        if not self.answer:
            self.socket.unlink()
            self.socket.touch()  # looks like the socket of another kubelet
        return await super().list(request, context)


async def test_kubelet_restarted_during_the_call_does_not_know_its_pods(socket_dir: Path) -> None:
    kubelet = RestartingKubelet(socket_dir)
    await kubelet.start()
    witness = witness_of(kubelet)
    kubelet.answer = [pod("web-1")]
    listed = await witness.listed()
    assert listed is not None
    assert listed.knows_its_pods
    kubelet.answer = []
    listed = await witness.listed()
    assert listed is not None
    assert not listed.knows_its_pods
    await kubelet.stop()


async def test_no_pod_counts_as_an_api_server_pod_without_a_node_name(kubelet: ScriptedKubelet) -> None:
    kubelet.answer = [pod("web-1")]
    listed = await witness_of(kubelet, "").listed()
    assert listed is not None
    assert not listed.knows_its_pods


async def test_static_pod_is_recognised_by_any_node_name(kubelet: ScriptedKubelet) -> None:
    kubelet.answer = [pod("etcd-node.example.com"), pod("proxy-node")]
    listed = await witness_of(kubelet, "node", "node.example.com").listed()
    assert listed is not None
    assert not listed.knows_its_pods


@pytest.mark.parametrize(
    "answer",
    [b"\xff\xff\xff\xff", b"\x0a\x03\x0a\x01\xff", b"\x0a\x7f", RuntimeError("not today"), bytes(40_000_000)],
    ids=["no message", "not UTF-8", "cut off", "an error", "too much"],
)
async def test_failed_list_gives_no_answer_until_the_next_valid_one(
    kubelet: ScriptedKubelet, answer: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    witness = witness_of(kubelet)
    kubelet.answer = answer
    assert await witness.listed() is None
    assert await witness.listed() is None
    assert len([x for x in caplog.records if "pod-resources does not answer" in x.message]) == 1
    kubelet.answer = [pod("a", {GPU: ["gpu-0"]})]
    listed = await witness.listed()
    assert listed is not None
    assert listed.units == {(GPU, "gpu-0"): "pod/default/a/c"}
    assert witness.problem == ""


async def test_problem_is_logged_again_for_another_kubelet(
    kubelet: ScriptedKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet.answer = ValueError("broken")
    witness = witness_of(kubelet)
    for _ in range(2):
        assert await witness.listed() is None
        assert await witness.listed() is None
        await kubelet.stop()
        await kubelet.start()
    assert await witness.listed() is None
    records = [x for x in caplog.records if x.name == "nodeplug.leases"]
    assert [x.__dict__["is_current"]() for x in records] == [False, False, True]


async def test_list_times_out_when_the_socket_is_silent(socket_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resources, "TIMEOUT", 0.1)
    silent = ScriptedKubelet(socket_dir)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(silent.socket))
        listening.listen()
        async with asyncio.timeout(30):
            assert await witness_of(silent).listed() is None


async def test_missing_socket_means_absent_kubelet(socket_dir: Path) -> None:
    none = ScriptedKubelet(socket_dir)
    witness = witness_of(none)
    assert witness.is_absent()
    assert await witness.listed() is None
    assert f"{none.socket} not found" in witness.problem


def test_only_a_missing_socket_counts_as_absent(socket_dir: Path) -> None:
    for name, is_absent in (("missing.sock", True), ("x" * 300, False)):
        assert PodResources(socket_dir / name, lambda resource: True, DRIVER).is_absent() == is_absent
