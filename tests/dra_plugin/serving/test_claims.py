"""Claims from API servers that have them, do not have them, use older versions, hang, or are down."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from checkpoint.holdings import ClaimName
from controlplane.apiserver import Server
from dra_plugin.driver import ClaimFailed, ClaimRef
from dra_plugin.serving.claims import ApiClaims, reference_problem
from resourceapi.client import AsyncClient, Credentials
from resourceapi.objects import v1
from tests.dra_plugin.kubelet_end import DRIVER, POOL, api_client, make_claim
from tests.resourceapi.client.peer import Request, claim, serving

ONE = ClaimRef("default", "one", "uid-1")


@contextlib.contextmanager
def claims_of(client: AsyncClient, timeout: float = 30.0) -> Iterator[ApiClaims]:
    with contextlib.closing(client):
        yield ApiClaims(client, DRIVER, POOL, timeout)


def client_of(url: str) -> AsyncClient:
    return AsyncClient(lambda: Credentials(server=url), attempts=1)


async def never_answer(request: Request) -> None:
    """Send no answer until the client gives up."""
    await request.reader.read()


async def test_allocated_claim_is_fetched(server: Server) -> None:
    ref = await make_claim(server, "one")
    with claims_of(api_client(server)) as claims:
        claim = await claims.fetch(ref)
        assert isinstance(claim, v1.ResourceClaim)
        assert claim.status.allocation is not None
        assert [result.device for result in claim.status.allocation.devices.results] == ["d"]


@pytest.mark.parametrize(
    ("results", "configs", "counts"), [(257, 0, "257 devices and 0"), (1, 257, "1 devices and 257"), (256, 256, "")]
)
async def test_claim_with_too_many_devices_or_configs_is_refused(results: int, configs: int, counts: str) -> None:
    """For a wrong or impersonated server: 10,000 devices of one claim would use 50 MiB permanently."""
    result = {"request": "r", "driver": "nodeplug.dev", "pool": "n", "device": "d"}
    opaque = {"driver": "nodeplug.dev", "parameters": {}}
    devices = {"results": [result] * results, "config": [{"source": "FromClaim", "opaque": opaque}] * configs}
    answer = claim(uid=ONE.uid) | {"status": {"allocation": {"devices": devices}}}
    async with serving(lambda request: request.answer(answer)) as peer:
        with claims_of(client_of(peer.url)) as claims:
            found = await claims.fetch(ONE)
    assert isinstance(found, ClaimFailed if counts else v1.ResourceClaim)
    assert isinstance(found, v1.ResourceClaim) or (found.reason.startswith(f"claim default/one has {counts} config"))


async def test_unusable_claim_is_refused_with_the_reason(server: Server) -> None:
    ready = await make_claim(server, "ready")
    pending = await make_claim(server, "pending", allocated=False)
    with claims_of(api_client(server)) as claims:
        for ref, reason in (
            (ONE, 'retrieve claim default/one: resourceclaims.resource.k8s.io "one" not found'),
            (pending, "claim default/pending not allocated"),
            (ClaimRef("default", "ready", "uid-of-an-older-one"), "claim default/ready got replaced"),
            (ClaimRef("kube-system", "ready", ready.uid), "retrieve claim kube-system/ready: "),
        ):
            failed = await claims.fetch(ref)
            assert isinstance(failed, ClaimFailed)
            assert failed.reason.startswith(reason)


async def test_refusal_of_the_server_is_quoted(server: Server) -> None:
    with claims_of(AsyncClient(lambda: Credentials(server=server.url, token="wrong"), attempts=1)) as claims:
        assert await claims.fetch(ONE) == ClaimFailed("retrieve claim default/one: Unauthorized", "no-answer")


def path_of(version: str) -> str:
    return f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims/one"


def claim_in(version: str) -> dict[str, object]:
    result = {"request": "r", "driver": DRIVER, "pool": POOL, "device": "d"}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", "namespace": "default", "uid": "uid-1"},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_claim_is_read_in_the_api_version_of_the_server(version: str) -> None:
    async def old(request: Request) -> None:
        if request.path == path_of(version):
            await request.answer(claim_in(version))
        else:
            await request.answer(b"404 page not found\n", 404)

    async with serving(old) as peer:
        with claims_of(client_of(peer.url)) as claims:
            for _ in range(2):
                assert isinstance(await claims.fetch(ONE), v1.ResourceClaim)
            assert [x.path for x in peer.asked[-2:]] == [path_of(version)] * 2  # only this version the second time
            assert claims.on_server.version == version


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', {"kind": "ResourceClaim"}, claim_in("v1") | {"spec": 3}])
async def test_malformed_answer_is_a_failure(body: object) -> None:
    async with serving(lambda request: request.answer(body)) as peer:
        with claims_of(client_of(peer.url)) as claims:
            failed = await claims.fetch(ONE)
            assert await claims.wanted([ClaimName("default", "one", "uid-1")]) == {}
    assert isinstance(failed, ClaimFailed)
    assert failed.reason.startswith("retrieve claim default/one: ")


async def test_unreachable_server_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with claims_of(client_of(url)) as claims:
            failed = await claims.fetch(ONE)
            assert isinstance(failed, ClaimFailed)
            assert failed.reason.startswith("retrieve claim default/one: ")
            assert url in failed.reason


async def test_fetch_times_out_when_the_server_hangs() -> None:
    async with serving(never_answer) as peer:
        with claims_of(client_of(peer.url), timeout=0.05) as claims:
            late = "retrieve claim default/one: no answer from the API server within 0.05 s"
            # more than the concurrent requests: those in the queue time out as well
            assert set(await asyncio.gather(*(claims.fetch(ONE) for _ in range(20)))) == {
                ClaimFailed(late, "no-answer")
            }


async def test_only_an_allocated_claim_with_the_same_uid_is_wanted(server: Server) -> None:
    ready, pending = await make_claim(server, "ready"), await make_claim(server, "pending", allocated=False)
    names = [ClaimName(ref.namespace, ref.name, ref.uid) for ref in (ready, pending)]
    others = [ClaimName("default", "ready", "uid-of-an-older-one"), ClaimName("default", "gone", "uid-of-gone")]
    nameless = ClaimName("", "", "uid-of-a-ledger-of-before")  # the server cannot be asked about it
    with claims_of(api_client(server, attempts=1)) as claims:
        assert await claims.wanted([*names, *others, nameless]) == {
            ready.uid: True,
            pending.uid: False,
            "uid-of-an-older-one": False,
            "uid-of-gone": False,
        }


async def test_failed_request_leaves_its_claim_undecided() -> None:
    async def failing(request: Request) -> None:
        await (request.answer(claim_in("v1")) if request.path == path_of("v1") else request.answer(b"", 500))

    async with serving(failing) as peer:
        with claims_of(client_of(peer.url)) as claims:
            asked = [ClaimName("default", "one", "uid-1"), ClaimName("default", "two", "uid-2")]
            assert await claims.wanted(asked) == {"uid-1": True}


def test_realistic_claim_name_is_well_formed() -> None:
    for name in ("gpu", "my.claim", "pod-1-extended-resources-x7k2p", "a" * 253):
        assert reference_problem(ClaimRef("default", name, "68de2e67-8ba5-41b2-b4a6-0d9b3c9d2a3c")) == ""
