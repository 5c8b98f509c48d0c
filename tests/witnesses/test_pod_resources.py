"""pod-resources as a witness: which holders it names, when an empty list is an answer, and invalid answers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkpoint.holdings import Listed
from grpcunix import Transport
from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.threads import no_free_threads
from tests.witnesses.kubelet import DRIVER, SaidKubelet, pod
from witnesses import PodResources, pod_resources

GPU = "example.com/gpu"


@pytest.fixture
async def kubelet(socket_dir: Path) -> AsyncIterator[SaidKubelet]:
    made = SaidKubelet(socket_dir)
    await made.start()
    yield made
    await made.stop()


def asking(kubelet: SaidKubelet, *nodes: str) -> PodResources:
    return PodResources(kubelet.socket, lambda resource: resource == GPU, DRIVER, nodes or ("node",))


async def test_holders_of_units_and_devices_of_claims_are_named(kubelet: SaidKubelet) -> None:
    kubelet.answer = [
        pod("a", {GPU: ["gpu-0", "gpu-1"], "other.com/gpu": ["gpu-7"]}),
        pod("b", claims={"c": ["gpu-2", "gpu-3/share-1"]}),
    ]
    assert await asking(kubelet).listed() == Listed(
        {(GPU, "gpu-0"): "pod/default/a/c", (GPU, "gpu-1"): "pod/default/a/c"},
        {("default", "c"): frozenset({"gpu-2", "gpu-3/share-1"})},
        knows_its_pods=True,
    )


@pytest.mark.parametrize("transport", ["builtin", "grpcio"])
async def test_a_list_may_be_as_long_as_the_kubelets_own_client_takes_it(
    kubelet: SaidKubelet, transport: Transport
) -> None:
    """gRPC limits a message to 4 MiB by default; the list of a node with many pods and devices is longer."""
    ids = [f"{'x' * 100}-{i}" for i in range(50_000)]
    kubelet.answer = [pod("a", {GPU: ids})]
    asked = PodResources(kubelet.socket, lambda resource: resource == GPU, DRIVER, ["node"], transport)
    listed = await asked.listed()
    assert listed is not None, asked.problem
    assert len(listed.units) == len(ids)


async def test_a_long_list_is_read_where_no_thread_is_left_too(kubelet: SaidKubelet) -> None:
    ids = [f"gpu-{'x' * 100}-{i}" for i in range(1_000)]
    kubelet.answer = [pod("a", {GPU: ids})]
    with_thread = await asking(kubelet).listed()
    async with no_free_threads():
        assert await asking(kubelet).listed() == with_thread is not None


async def test_pods_that_share_a_claim_name_all_of_its_devices(kubelet: SaidKubelet) -> None:
    kubelet.answer = [pod("a", claims={"c": ["gpu-0"]}), pod("b", claims={"c": ["gpu-1"]})]
    listed = await asking(kubelet).listed()
    assert listed is not None
    assert listed.claims == {("default", "c"): frozenset({"gpu-0", "gpu-1"})}


async def test_a_kubelet_knows_its_pods_once_it_has_listed_one_of_the_api_server(kubelet: SaidKubelet) -> None:
    asked = asking(kubelet)

    async def knows() -> bool:
        listed = await asked.listed()
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


class Restarting(SaidKubelet):
    """A kubelet that restarts between our check of its socket and its answer, and lists no pod at first."""

    async def list(
        self, request: podresources.ListPodResourcesRequest, context: object
    ) -> podresources.ListPodResourcesResponse | bytes:
        if not self.answer:
            self.socket.unlink()
            self.socket.touch()  # looks like the socket of another kubelet
        return await super().list(request, context)


async def test_a_kubelet_that_started_while_it_was_asked_is_not_the_one_that_knew_its_pods(socket_dir: Path) -> None:
    kubelet = Restarting(socket_dir)
    await kubelet.start()
    asked = asking(kubelet)
    kubelet.answer = [pod("web-1")]
    listed = await asked.listed()
    assert listed is not None
    assert listed.knows_its_pods
    kubelet.answer = []
    listed = await asked.listed()
    assert listed is not None
    assert not listed.knows_its_pods
    await kubelet.stop()


async def test_where_nobody_knows_the_nodes_name_no_pod_is_certainly_the_api_servers(kubelet: SaidKubelet) -> None:
    kubelet.answer = [pod("web-1")]
    listed = await asking(kubelet, "").listed()
    assert listed is not None
    assert not listed.knows_its_pods


async def test_a_static_pod_may_have_any_of_the_nodes_names(kubelet: SaidKubelet) -> None:
    kubelet.answer = [pod("etcd-node.example.com"), pod("proxy-node")]
    listed = await asking(kubelet, "node", "node.example.com").listed()
    assert listed is not None
    assert not listed.knows_its_pods


@pytest.mark.parametrize(
    "answer",
    [b"\xff\xff\xff\xff", b"\x0a\x03\x0a\x01\xff", b"\x0a\x7f", RuntimeError("not today"), bytes(40_000_000)],
    ids=["no message", "not UTF-8", "cut off", "an error", "too much"],
)
async def test_an_answer_that_is_none_is_silence_and_the_next_one_counts(
    kubelet: SaidKubelet, answer: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asking(kubelet)
    kubelet.answer = answer
    assert await asked.listed() is None
    assert await asked.listed() is None
    assert len([x for x in caplog.records if "pod-resources does not answer" in x.message]) == 1
    kubelet.answer = [pod("a", {GPU: ["gpu-0"]})]
    listed = await asked.listed()
    assert listed is not None
    assert listed.units == {(GPU, "gpu-0"): "pod/default/a/c"}
    assert asked.problem == ""


async def test_a_socket_at_which_nobody_answers_is_given_up(socket_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resources, "TIMEOUT", 0.1)
    silent = SaidKubelet(socket_dir)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(silent.socket))
        listening.listen()
        async with asyncio.timeout(30):
            assert await asking(silent).listed() is None


async def test_without_a_socket_there_is_no_kubelet(socket_dir: Path) -> None:
    none = SaidKubelet(socket_dir)
    asked = asking(none)
    assert asked.is_absent()
    assert await asked.listed() is None
    assert f"{none.socket} not found" in asked.problem


def test_only_a_socket_that_is_certainly_not_there_is_absent(socket_dir: Path) -> None:
    for name, is_absent in (("missing.sock", True), ("x" * 300, False)):
        assert PodResources(socket_dir / name, lambda resource: True, DRIVER).is_absent() == is_absent
