"""PodCertificateRequests and ClusterTrustBundles: PEM, and the status that a signer writes."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.apiserver.access.pem import Block, pem_blocks
from tests.controlplane.apiserver.access.test_certificates import REQUESTS
from tests.controlplane.apiserver.running import MERGE, Http, Plain

CERTIFICATES = "/apis/certificates.k8s.io/v1"
POD_REQUESTS = f"{CERTIFICATES}/namespaces/default/podcertificaterequests"
ED25519 = bytes.fromhex("06032b6570")
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("x\n-----BEGIN A-----\r\nQUI=  \r\n-----END A----- \nx", [Block("A", False, b"AB")]),
        ("-----BEGIN A-----\nk: v\n\nQUI=\n-----END A-----", [Block("A", True, b"AB")]),
        ("-----BEGIN A-----\n-----BEGIN B-----\nQUI=\n-----END B-----", [Block("B", False, b"AB")]),
        ("-----BEGIN A-----\n-----END A-----", [Block("A", False, b"")]),
        ("-----BEGIN A-----\n?\n-----END A-----\n-----BEGIN B-----\nQUI=\n-----END B-----", [Block("B", False, b"AB")]),
        ("-----BEGIN A-----\nQUI=\n-----END B-----", []),
        ("-----BEGIN A-----\nk: v\n-----END A-----", []),
        ("x-----BEGIN A-----\nQUI=\n-----END A-----", []),
        ("-----BEGIN A\nQUI=\n-----END A", []),
    ],
)
def test_pem_blocks_are_those_of_go(text: str, blocks: list[Block]) -> None:
    assert list(pem_blocks(text.encode())) == blocks


@pytest.mark.parametrize("line", ["-----BEGIN CERTIFICATE-----\n", "a:\n", " "])
def test_pem_without_an_end_is_refused_in_time(api: Http, line: str) -> None:
    text = f"-----BEGIN CERTIFICATE REQUEST-----\n{line * ((MIB - 40) // len(line))}"
    bundle = {"metadata": {"name": "long"}, "spec": {"trustBundle": text}}
    refused = api.send("POST", f"{CERTIFICATES}/clustertrustbundles", bundle)
    assert (refused.status, "at least one trust anchor must be provided" in refused.message) == (422, True)
    request = {"request": base64.b64encode(text.encode()).decode(), "signerName": "a.b/c", "usages": ["client auth"]}
    refused = api.send("POST", REQUESTS, {"metadata": {"name": "long"}, "spec": request})
    assert (refused.status, "must be CERTIFICATE REQUEST" in refused.message) == (422, True)


def _der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = len(content).to_bytes(2)
    return bytes([tag]) + (size[1:] if len(content) < 0x80 else b"\x82" + size) + content


def _sequence(*contents: bytes) -> bytes:
    return _der(0x30, *contents)


def _key(fill: bytes) -> bytes:
    return _sequence(_sequence(ED25519), _der(0x03, b"\0" + fill * 32))


def _certificate(key: bytes, begin: datetime, end: datetime) -> str:
    """A certificate without a signature, as PEM."""
    validity = _sequence(*(_der(0x18, f"{time:%Y%m%d%H%M%S}Z".encode()) for time in (begin, end)))
    version, number, algorithm, name = _der(0xA0, _der(0x02, b"\2")), _der(0x02, b"\1"), _sequence(ED25519), _sequence()
    signed = _sequence(version, number, algorithm, name, validity, name, key)
    data = _sequence(signed, algorithm, _der(0x03, b"\0"))
    return f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(data).decode()}\n-----END CERTIFICATE-----\n"


def _shown(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


NOW = datetime.now(UTC).replace(microsecond=0)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"notBefore": None}, "status.notBefore: Required value"),
        ({"beginRefreshAt": NOW + 9 * MINUTE}, "must be at least 10 minutes after status.notBefore"),
        ({"beginRefreshAt": NOW + 2 * HOUR - 9 * MINUTE}, "must be at least 10 minutes before status.notAfter"),
        ({"notAfter": NOW + HOUR}, "must be set to the NotAfter time encoded in the leaf certificate"),
        ({"notBefore": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)}, "NotBefore time encoded in the leaf certificate"),
        ({"notAfter": datetime(1, 1, 1, 0, 1, tzinfo=UTC)}, "NotAfter time encoded in the leaf certificate"),
        ({"certificateChain": "x"}, "issued certificate chain must contain at least one certificate"),
        ({"certificateChain": _certificate(_key(b"o"), NOW, NOW + HOUR)}, "not issued to the requested public key"),
        ({"certificateChain": _certificate(_key(b"k"), NOW - HOUR, NOW + HOUR)}, "NotBefore time encoded in the leaf"),
        ({"conditions": [{"type": "Denied"}]}, "non-condition status fields must be empty"),
        ({"conditions": [{"type": "Issued"}, {"type": "Failed"}]}, "There may be at most one condition"),
        ({"conditions": [{"type": "Issued", "status": "False"}]}, 'supported values: "True"'),
        ({"conditions": []}, 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'),
    ],
)
def test_status_of_a_signer_must_fit_its_certificate(api: Http, change: dict[str, Any], why: str) -> None:
    key = _key(b"k")
    stub = _sequence(_sequence(_der(0x02, b"\0"), _sequence(), key, _der(0xA0)), _sequence(ED25519), _der(0x03, b"\0"))
    spec: Plain = {"signerName": "example.com/signer", "stubPKCS10Request": base64.b64encode(stub).decode()}
    for name in ("pod", "serviceAccount", "node"):
        spec |= {f"{name}Name": "n", f"{name}UID": "u"}
    api.ok("POST", POD_REQUESTS, {"metadata": {"name": "r"}, "spec": spec})
    times = {"notBefore": NOW, "beginRefreshAt": NOW + HOUR, "notAfter": NOW + 2 * HOUR}
    chain = _certificate(key, NOW, NOW + 2 * HOUR)
    status: Plain = {"certificateChain": chain, "conditions": [{"type": "Issued"}], **times, **change}
    condition = {"status": "True", "reason": "R", "message": "m", "lastTransitionTime": _shown(NOW)}
    status["conditions"] = [{**condition, **each} for each in status["conditions"]]
    sent = {name: _shown(value) if isinstance(value, datetime) else value for name, value in status.items()}
    answer = api.send("PATCH", f"{POD_REQUESTS}/r/status", {"status": sent}, content=MERGE)
    assert (answer.status, why in answer.body.get("message", "")) == (422 if why else 200, True), answer.text
    if not why:
        refused = api.send("PATCH", f"{POD_REQUESTS}/r/status", {"status": {"notAfter": None}}, content=MERGE)
        assert "immutable after PodCertificateRequest is issued, denied, or failed" in refused.message
