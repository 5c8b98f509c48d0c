"""CertificateSigningRequests: validation, approval, and what the signed certificates permit."""

import base64
import http.client
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.controlplane.apiserver.running import Http, Kubectl, Plain, Running

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the requests")

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET, SERVING = f"{CLIENT}-kubelet", "kubernetes.io/kubelet-serving"
NODE_SUBJECT = "/O=system:nodes/CN=system:node:n1"


class PemRequest(NamedTuple):
    """A request as PEM, and the path of its private key."""

    pem: bytes
    key: Path


@pytest.fixture(scope="module")
def secure() -> Iterator[Running]:
    with Running(tls=True, collect_after=None) as running:
        yield running


@pytest.fixture(scope="module")
def https(secure: Running) -> Iterator[Http]:
    with secure.http() as http:
        yield http


def _pem_request(folder: Path, subject: str, *alternative: str) -> PemRequest:
    key = folder / "key.pem"
    more = ["-addext", f"subjectAltName={','.join(alternative)}"] if alternative else []
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command = ["openssl", "req", "-new", *curve, "-keyout", str(key), "-subj", subject, *more]
    return PemRequest(subprocess.run(command, check=True, capture_output=True).stdout, key)


def _request(name: str, pem: bytes, signer: str, *usages: str, **more: object) -> Plain:
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": list(usages), **more}
    return {"metadata": {"name": name}, "spec": spec}


def _approved(**more: str) -> Plain:
    return {"status": {"conditions": [{"type": "Approved", "status": "True", **more}]}}


def _outcome(https: Http, name: str) -> Plain:
    """The status of a request after it was signed or has failed."""
    with https.watch(REQUESTS, fieldSelector=f"metadata.name={name}") as events:
        for event in events:
            status: Plain = event["object"].get("status", {})
            kinds = [each["type"] for each in status.get("conditions", ())]
            if "certificate" in status or "Failed" in kinds:
                return status
    raise AssertionError("the watch ended")


def test_kubelet_certificate_is_signed_and_authenticates_the_node(secure: Running, https: Http, tmp_path: Path) -> None:
    """The flow of `kubelet --bootstrap-kubeconfig`: automatic approval, signature, and access without a token."""
    pem_request = _pem_request(tmp_path, NODE_SUBJECT)
    made = https.ok("POST", REQUESTS, _request("kubelet", pem_request.pem, KUBELET, "digital signature", "client auth"))
    assert made["spec"]["username"] == "nodeplug"
    status = _outcome(https, "kubelet")
    assert [(each["type"], each["reason"]) for each in status["conditions"]] == [("Approved", "AutoApproved")]
    certificate = tmp_path / "crt.pem"
    certificate.write_bytes(base64.b64decode(status["certificate"]))
    context = ssl.create_default_context(cadata=secure.server.ca)
    context.load_cert_chain(certificate, pem_request.key)
    connection = http.client.HTTPSConnection(secure.url.removeprefix("https://"), context=context, timeout=20)
    connection.request(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", b"{}", {"Content-Type": "application/json"}
    )
    answer = connection.getresponse().read().decode()
    connection.close()
    assert '"username":"system:node:n1"' in answer
    assert '"system:nodes"' in answer


def test_serving_certificate_is_issued_after_approval(
    https: Http, kubectl: str, secure: Running, tmp_path: Path
) -> None:
    pem_request = _pem_request(tmp_path, NODE_SUBJECT, "DNS:n1", "IP:10.0.0.1")
    https.ok("POST", REQUESTS, _request("serving", pem_request.pem, SERVING, "digital signature", "server auth"))
    shell = Kubectl(kubectl, secure.kubeconfig(tmp_path / "kubeconfig"), tmp_path)
    assert shell.ok("get", "csr", "serving", "--no-headers").split()[-1] == "Pending"
    assert "approved" in shell.ok("certificate", "approve", "serving")
    pem = base64.b64decode(_outcome(https, "serving")["certificate"])
    shown = subprocess.run(["openssl", "x509", "-noout", "-text"], input=pem, check=True, capture_output=True)
    assert b"DNS:n1, IP Address:10.0.0.1" in shown.stdout
    assert b"TLS Web Server Authentication" in shown.stdout
    assert shell.ok("get", "csr", "serving", "--no-headers").split()[-1] == "Approved,Issued"


def test_approved_request_with_invalid_subject_fails(https: Http, tmp_path: Path) -> None:
    """The failure reason and message are those of the reference signer."""
    pem_request = _pem_request(tmp_path, "/O=others/CN=system:node:n1")
    https.ok("POST", REQUESTS, _request("other", pem_request.pem, KUBELET, "digital signature", "client auth"))
    https.ok("PATCH", f"{REQUESTS}/other/approval", _approved(), content="application/merge-patch+json")
    failed = _outcome(https, "other")["conditions"][1]
    assert (failed["reason"], failed["message"]) == (
        "SignerValidationFailure",
        "subject organization is not system:nodes",
    )


def test_requester_is_recorded_and_spec_and_conditions_are_protected(api: Http, tmp_path: Path) -> None:
    """The server records the requester. Conditions and certificate change only through their own subresources."""
    pem_request = _pem_request(tmp_path, "/CN=somebody")
    request = _request("mine", pem_request.pem, "example.com/signer", "client auth", username="root", groups=["all"])
    request["status"] = _approved()["status"]
    made = api.ok("POST", REQUESTS, request)
    assert (made["spec"]["username"], made["status"]) == ("nodeplug", {})
    for part, status, why in (
        ("status", _approved()["status"], 'updates may not add a condition of type "Approved"'),
        ("status", {"certificate": "eA=="}, "must contain at least one CERTIFICATE PEM block"),
        ("approval", {"conditions": [{"type": "Denied"}]}, "status.conditions[0].status: Required value"),
    ):
        refused = api.send("PUT", f"{REQUESTS}/mine/{part}", {**made, "status": status})
        assert refused.status == 422
        assert why in refused.message
    approved = api.ok("PUT", f"{REQUESTS}/mine/approval", made | _approved() | {"spec": {}})
    assert approved["spec"] == made["spec"]
    assert approved["status"]["conditions"][0]["lastTransitionTime"]
    refused = api.send("PUT", f"{REQUESTS}/mine/approval", {**made, "status": {}, "metadata": {"name": "mine"}})
    assert 'updates may not remove a condition of type "Approved"' in refused.message


def test_invalid_certificate_request_is_refused(api: Http, tmp_path: Path) -> None:
    refused = api.send("POST", REQUESTS, _request("bad", b"x", "example.com", expirationSeconds=1))
    assert refused.status == 422
    for text in (
        "PEM block type must be CERTIFICATE REQUEST",
        "spec.usages: Required value",
        'spec.signerName: Invalid value: "example.com": must be a fully qualified domain and path of the form',
        "may not specify a duration less than 600 seconds (10 minutes)",
    ):
        assert text in refused.message
    pem_request = _pem_request(tmp_path, "/O=system:masters/CN=me")
    refused = api.send("POST", REQUESTS, _request("master", pem_request.pem, CLIENT, "client auth"))
    assert refused.status == 403
    assert refused.message.endswith(f"use of {CLIENT} signer with system:masters group is not allowed")
