"""The client with malicious, endless and slow servers: always a ClientError, within limits of time and memory."""

import asyncio
import gzip

import pytest

from resourceapi.client import AsyncClient, ClientError, InvalidAnswer, Limits, Refused, Unreachable
from resourceapi.objects import DecodeError, v1
from tests.resourceapi.client.peer import (
    CLAIM,
    Json,
    Request,
    Script,
    Waits,
    claim,
    claim_list,
    client_of,
    drip,
    memory,
    serving,
    status,
)

MIB = 1 << 20
COMPRESSED_BOMB = gzip.compress(b'"' + bytes(20 * MIB))


async def get(client: AsyncClient) -> v1.ResourceClaim:
    return await client.resource(v1.ResourceClaim).get("one", "default")


async def endless_chunks(request: Request) -> None:
    await request.stream(b'{"a": "')
    while True:
        await request.piece(b"x" * 65536)


async def long_body(request: Request) -> None:
    await request.send(b"HTTP/1.1 200 OK\r\ncontent-length: 734003200\r\n\r\n" + b"x" * 65536)


async def compressed(request: Request) -> None:
    await request.answer(COMPRESSED_BOMB, content_encoding="gzip")


async def endless_headers(request: Request) -> None:
    await request.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await request.send(b"x: " + b"y" * 1000 + b"\r\n")


async def endless_informational_answers(request: Request) -> None:
    while True:
        await request.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(0)


@pytest.mark.parametrize("script", [endless_chunks, long_body, compressed, endless_headers])
async def test_oversized_answer_is_refused_within_memory_limit(script: Script) -> None:
    async with serving(script) as peer:
        with client_of(peer) as client, memory(8 * MIB), pytest.raises(Unreachable):
            await get(client)
    assert "accept-encoding" not in peer.asked[0].headers


async def test_large_answers_are_read_one_at_a_time() -> None:
    """Reading all of them at once would need 64 MiB, of the DaemonSet's limit of 128 MiB."""
    async with serving(endless_chunks) as peer:
        with client_of(peer, limits=Limits(object=4 * MIB)) as client, memory(24 * MIB):
            claims = client.resource(v1.ResourceClaim)
            gets = (claims.get(f"claim-{i}", "default") for i in range(16))
            found = await asyncio.gather(*gets, return_exceptions=True)
    assert [type(each) for each in found] == [InvalidAnswer] * 16


async def test_unfinished_large_answer_does_not_delay_small_one() -> None:
    async def script(request: Request) -> None:
        if "large" not in request.path:
            await request.answer(claim())
            return
        await request.stream(b'"' + b"x" * MIB)
        await request.reader.read()

    async with serving(script) as peer:
        with client_of(peer, limits=Limits(object=4 * MIB)) as client, client_of(peer, timeout=0.2) as impatient:
            impatient._large = client._large
            large = asyncio.create_task(client.resource(v1.ResourceClaim).get("large", "default"))
            while not client._large.locked():  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0)
            assert (await get(impatient)).metadata.name == "one"
            with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
                await impatient.resource(v1.ResourceClaim).get("large", "default")
            large.cancel()
            await asyncio.wait([large])
            assert not client._large.locked()


async def test_endless_error_body_is_still_a_refusal() -> None:
    async def script(request: Request) -> None:
        await request.send(b"HTTP/1.1 403 No\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await request.piece(b"x" * 65536)

    async with serving(script) as peer:
        with client_of(peer) as client, memory(8 * MIB), pytest.raises(Refused, match="403: HTTP 403"):
            await get(client)


@pytest.mark.parametrize("script", [drip, endless_informational_answers])
async def test_slow_answer_is_ended_at_deadline(script: Script) -> None:
    async with serving(script) as peer:
        with client_of(peer, timeout=0.2) as client, pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
            await get(client)


async def test_slow_answers_do_not_delay_other_requests() -> None:
    async def script(request: Request) -> None:
        await (drip(request) if "slow" in request.path else request.answer(claim()))

    async with serving(script) as peer:
        with client_of(peer, timeout=60.0) as client:
            claims = client.resource(v1.ResourceClaim)
            slow = [asyncio.create_task(claims.get(f"slow-{i}", "default")) for i in range(12)]
            await peer.until_asked(12)
            assert (await get(client)).metadata.name == "one"
            for task in slow:
                task.cancel()
            await asyncio.wait(slow)


async def test_cancelled_requests_free_their_connections() -> None:
    """There are more requests than allowed at once, and a cancelled one frees its place immediately."""
    hanging = asyncio.Event()

    async def script(request: Request) -> None:
        if "slow" in request.path:
            await hanging.wait()
        await request.answer(claim())

    async with serving(script) as peer:
        with client_of(peer, timeout=60.0) as client:
            claims = client.resource(v1.ResourceClaim)
            slow = [asyncio.create_task(claims.get(f"slow-{i}", "default")) for i in range(100)]
            await peer.until_asked(16)
            assert peer.connections <= 16
            for task in slow:
                task.cancel()
            assert (await get(client)).metadata.name == "one"
            await asyncio.wait(slow)


async def test_queued_request_has_a_deadline() -> None:
    async with serving(drip) as peer:
        with client_of(peer, timeout=60.0) as slow, client_of(peer, timeout=0.2, attempts=2) as client:
            client._queue = slow._queue  # the other client's requests occupy all places
            under_way = [asyncio.create_task(get(slow)) for _ in range(16)]
            await peer.until_asked(16)
            with pytest.raises(Unreachable, match=r"GET .*/one: no answer within 0\.4 s"):
                await get(client)
            assert len(peer.asked) == 16
            for task in under_way:
                task.cancel()
            await asyncio.wait(under_way)


async def test_hanging_name_lookup_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup also occupies no thread for which the interpreter waits at exit."""
    from threading import Event as Flag

    from resourceapi.client import wire

    resolved = Flag()
    resolve = wire._resolved

    def hang(host: str, port: int, flags: int) -> list[tuple[str, int]]:
        return resolve(host, port, flags) if flags else ([], resolved.wait())[0]

    monkeypatch.setattr(wire, "_resolved", hang)
    async with serving(drip) as peer:
        peer.url = "http://api.example.com:1"
        with client_of(peer, timeout=0.05) as client, pytest.raises(Unreachable, match="no answer within"):
            await get(client)
    resolved.set()


@pytest.mark.parametrize(
    "metadata", [{"name": "../../pwn"}, {"namespace": "kube-system"}, {"name": ""}, {"name": "one\n"}]
)
async def test_answer_with_another_object_is_refused(metadata: Json) -> None:
    async with serving(lambda request: request.answer(claim(**metadata))) as peer:
        with client_of(peer) as client:
            for objects in (client.resource(v1.ResourceClaim), client.any_version(v1.ResourceClaim)):
                with pytest.raises(InvalidAnswer, match="the API server answered with another object"):
                    await objects.get("one", "default")
            with pytest.raises(InvalidAnswer, match="another object"):
                await client.raw("v1", "pods", namespaced=True).get("one", "default")


async def test_answer_with_other_uid_is_refused_only_if_uid_was_sent() -> None:
    async with serving(lambda request: request.answer(claim(uid="other"))) as peer:
        with client_of(peer) as client:
            claims = client.resource(v1.ResourceClaim)
            found = await claims.get("one", "default")
            other_uid = {"metadata": {"name": "one", "namespace": "default", "uid": "mine"}}
            with pytest.raises(InvalidAnswer, match=r"PATCH .*/one/status: .* uid 'other', not 'mine'"):
                await claims.apply(other_uid, "driver", subresource="status")
            assert (await claims.update(found)).metadata.uid == "other"


async def test_created_object_must_have_requested_name_or_prefix() -> None:
    answers = [claim(), claim(name="one-x7k2p"), claim(name="two")]
    async with serving(lambda request: request.answer(answers.pop(0))) as peer:
        with client_of(peer) as client:
            claims = client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True)
            recreated = {"metadata": {"name": "one", "namespace": "default", "uid": "of-the-one-before"}}
            assert (await claims.create(recreated))["metadata"]["uid"] == "u"
            generated = {"metadata": {"generateName": "one-", "namespace": "default"}}
            assert (await claims.create(generated))["metadata"]["name"] == "one-x7k2p"
            with pytest.raises(InvalidAnswer, match="does not begin with 'one-'"):
                await claims.create(generated)


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default", "uid": "u"}}


@pytest.mark.parametrize(
    "answer", [b"[" * 200_000, POD, [1, 2], None, 5, {}, {"metadata": []}, claim() | {"kind": "X"}, b"\xff", b""]
)
async def test_malformed_object_is_client_or_decode_error(answer: object) -> None:
    async with serving(lambda request: request.answer(answer)) as peer:
        with client_of(peer) as client:
            with pytest.raises((ClientError, DecodeError)):
                await get(client)
            with pytest.raises(ClientError):
                await client.any_version(v1.ResourceClaim).list()
            if answer != POD:
                with pytest.raises(ClientError):
                    await client.raw("v1", "pods", namespaced=True).get("two", "default")


async def test_object_of_other_kind_is_refused() -> None:
    async with serving(lambda request: request.answer(POD)) as peer:
        with client_of(peer) as client, pytest.raises(InvalidAnswer, match="answered with a Pod, not a ResourceClaim"):
            await get(client)


@pytest.mark.parametrize(
    "answer",
    [
        claim_list() | {"items": [1]},
        claim_list() | {"items": {}},
        claim_list() | {"metadata": 5},
        claim_list() | {"kind": "PodList"},
        claim_list() | {"kind": 5},
        claim_list(claim(namespace="other")),
        {"kind": "ResourceClaimList"},
    ],
)
async def test_malformed_list_is_refused(answer: object) -> None:
    async with serving(lambda request: request.answer(answer)) as peer:
        with client_of(peer) as client, pytest.raises((ClientError, DecodeError)):
            await client.resource(v1.ResourceClaim).list("default")


@pytest.mark.parametrize(
    "text", ["\xb2", "-1", "1e9", "9" * 5000, "Fri, 31 Dec 1999 23:59:59 GMT", "", "٣".encode().decode("latin-1")]
)
async def test_invalid_retry_after_is_ignored(text: str) -> None:
    async with serving(lambda request: request.answer(b"{}", 429, retry_after=text)) as peer:
        with client_of(peer) as client, pytest.raises(Refused) as refused:
            await get(client)
    assert refused.value.retry_after is None


async def test_retry_after_is_limited_to_30_seconds() -> None:
    waits = Waits()
    async with serving(lambda request: request.answer(b"{}", 429, retry_after="99999999")) as peer:
        with client_of(peer, attempts=3, wait=waits) as client, pytest.raises(Refused):
            await get(client)
    assert all(30.0 <= wait <= 37.5 for wait in waits)
    assert len(waits) == 2


async def test_attempts_share_one_deadline() -> None:
    async with serving(lambda request: request.answer(b"{}", 429, retry_after="30")) as peer:
        with client_of(peer, attempts=3, timeout=0.05) as client, pytest.raises(Unreachable, match=r"within 0\.15 s"):
            await get(client)


@pytest.mark.parametrize("members", [{"details": "x"}, {"details": {"causes": "x"}}, {"message": 5, "reason": []}])
async def test_status_with_wrong_types_is_a_refusal(members: Json) -> None:
    async with serving(lambda request: request.answer(status(504, **members), 504)) as peer:
        with client_of(peer) as client, pytest.raises(Refused) as refused:
            await get(client)
    assert refused.value.code == 504
    assert not refused.value.is_version_too_large
    assert not refused.value.is_missing
    assert len(str(refused.value)) < 100


async def test_long_refusal_message_is_cut() -> None:
    async with serving(lambda request: request.answer(status(403, message="x" * 200_000), 403)) as peer:
        with client_of(peer) as client, pytest.raises(Refused) as refused:
            await get(client)
    assert len(refused.value.message) < 5000


async def test_redirect_is_not_followed() -> None:
    async with serving(lambda request: request.answer({}, 302, location="http://127.0.0.1:1/evil")) as peer:
        with client_of(peer) as client, pytest.raises(Refused, match="302"):
            await get(client)
    assert len(peer.asked) == 1


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 400, b"", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\n"]
)
async def test_answer_without_http_is_unreachable(data: bytes) -> None:
    async def script(request: Request) -> None:
        await request.send(data)
        request.writer.close()

    async with serving(script) as peer:
        with client_of(peer) as client, pytest.raises(Unreachable, match=f"GET {peer.url}{CLAIM}: "):
            await get(client)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "..%2f..", "\ud800"])
async def test_invalid_object_name_is_not_sent(name: str) -> None:
    async with serving(lambda request: request.answer(claim())) as peer:
        with client_of(peer) as client:
            for place in ((name, "default"), ("one", name)):
                with pytest.raises(ClientError, match="cannot be a name"):
                    await client.any_version(v1.ResourceClaim).get(*place)
    assert peer.asked == []


async def test_special_characters_of_names_are_percent_encoded() -> None:
    name = "a?b c#d:ü\r\n"
    async with serving(lambda request: request.answer(claim(name=name))) as peer:
        with client_of(peer) as client:
            await client.resource(v1.ResourceClaim).get(name, "default")
    assert peer.asked[0].target.endswith("/resourceclaims/a%3Fb%20c%23d%3A%C3%BC%0D%0A")


@pytest.mark.parametrize("token", ["a\nb", "ü", "\ud800", "a\0b"])
async def test_invalid_token_is_not_sent(token: str) -> None:
    async with serving(lambda request: request.answer(claim())) as peer:
        with (
            client_of(peer, credentials={"token": token}) as client,
            pytest.raises(ClientError, match="cannot be sent"),
        ):
            await get(client)
    assert peer.asked == []
