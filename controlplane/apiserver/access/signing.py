"""Signs approved certificate requests of the cluster's own signers with the server's certificate authority.

Requests of kubelets for client certificates are approved if the kubelet has the right. Source: kubernetes.io
"Certificates and Certificate Signing Requests" (signers), "TLS bootstrapping"; the texts are upstream's.
"""

import asyncio
import base64
import logging
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from controlplane.apiserver.access.authorization import Attributes, Authorizer
from controlplane.apiserver.access.certificates import (
    APPROVAL,
    APPROVED,
    CLIENT_SIGNER,
    DENIED,
    FAILED,
    KIND_ID,
    PLURAL,
    conditions_of,
    pem_of,
    user_of,
)
from controlplane.apiserver.access.identity import MASTERS, Caller, User
from controlplane.apiserver.access.pkcs10 import CertificateRequest, read_request
from controlplane.apiserver.access.signers import GROUP
from controlplane.apiserver.access.tls import Authority, TlsError, sign
from controlplane.apiserver.kinds import Kind, Plain
from controlplane.apiserver.options import WriteOptions
from controlplane.apiserver.rest import Rest
from controlplane.apiserver.status import ApiError
from controlplane.apiserver.target import Target

KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
_MANAGER = "kube-controller-manager"
_CALLER = Caller(User("system:kube-controller-manager", (MASTERS,)), "update")
_NODES, _NODE = ("system:nodes",), "system:node:"
_DAY, _MAX_DAYS = 86400, 365
_DNS = re.compile(r"[A-Za-z0-9*_.-]+\Z")  # only these characters are safe in openssl's configuration
_KEY_USAGES = {"digital signature": "digitalSignature", "key encipherment": "keyEncipherment"}
_PURPOSES = {"client auth": "clientAuth", "server auth": "serverAuth"}

log = logging.getLogger(__name__)


class Signer:
    """The signers and the approver."""

    def __init__(self, rest: Rest, kind: Kind, authorizer: Authorizer, authority: Authority) -> None:
        self._rest, self._store, self._kind = rest, rest.store, kind
        self._authorizer = authorizer
        self._authority = authority

    async def run(self) -> None:
        """Process each request that is written, until cancelled. A failure is tried again after the next write."""
        subscription = self._store.subscribe(KIND_ID)
        try:
            while True:
                subscription.take()
                try:
                    await self._process_all()
                    await self._store.commit()
                except Exception:
                    log.exception("%s could not be looked at", PLURAL)
                await subscription.changed.wait()
        finally:
            self._store.unsubscribe(subscription)

    async def _process_all(self) -> None:
        for request in list(self._store.objects(KIND_ID)):
            try:
                await self._process(request)
            except ApiError as error:  # changed meanwhile, so it is processed again
                log.info("%s %s: %s", PLURAL, request["metadata"]["name"], error)

    async def _process(self, request: Plain) -> None:
        has_outcome = conditions_of(request, DENIED) or conditions_of(request, FAILED)
        signer = request["spec"].get("signerName")
        if has_outcome or (request.get("status") or {}).get("certificate") or signer not in _RULES:
            return
        wanted = read_request(pem_of(request))
        why = _RULES[signer](wanted, frozenset(request["spec"].get("usages") or ()))
        if not conditions_of(request, APPROVED):
            if signer == KUBELET_CLIENT and not why:
                self._approve(request, wanted)
            return
        try:
            certificate = "" if why else await self._signed(request, wanted)
        except TlsError as error:
            why = str(error)
        if why:
            failed = {"type": FAILED, "status": "True", "reason": "SignerValidationFailure", "message": why}
            self._write(request, "status", {"conditions": [*_conditions(request), failed]})
        else:
            encoded = base64.b64encode(certificate.encode()).decode()
            self._write(request, "status", {**request["status"], "certificate": encoded})

    def _approve(self, request: Plain, wanted: CertificateRequest) -> None:
        """Approve a request if its user has the right: for its own node, or for any."""
        user = user_of(request)
        for part, is_applicable, message in (
            ("selfnodeclient", user.name == wanted.common_name, "self kubelet client"),
            ("nodeclient", True, "kubelet client"),
        ):
            if is_applicable and self._authorizer.decide(user, Attributes("create", GROUP, PLURAL, part)).is_allowed:
                text = f"Auto approving {message} certificate after SubjectAccessReview."
                condition = {"type": APPROVED, "status": "True", "reason": "AutoApproved", "message": text}
                self._write(request, APPROVAL, {"conditions": [condition]})
                return

    async def _signed(self, request: Plain, wanted: CertificateRequest) -> str:
        seconds = request["spec"].get("expirationSeconds") or _MAX_DAYS * _DAY
        days = min(_MAX_DAYS, -(-seconds // _DAY))
        extensions = _extensions(wanted, request["spec"].get("usages") or ())
        with tempfile.TemporaryDirectory(prefix="apiserver-") as folder:
            arguments = (Path(folder), self._authority, pem_of(request), extensions, days)
            return await asyncio.to_thread(sign, *arguments)

    def _write(self, request: Plain, part: str, status: Plain) -> None:
        metadata = request["metadata"]
        target = Target(self._kind, "v1", "", metadata["name"], part, _CALLER)
        self._rest.update(target, {**request, "status": status}, WriteOptions(), _MANAGER)


def _conditions(request: Plain) -> list[Plain]:
    return list((request.get("status") or {}).get("conditions") or ())


def _extensions(wanted: CertificateRequest, usages: list[str] | tuple[str, ...]) -> str:
    names = [*(f"DNS:{name}" for name in wanted.dns), *(f"IP:{address}" for address in wanted.addresses)]
    lines = ["basicConstraints=critical,CA:FALSE"]
    for extension, known in (("keyUsage=critical", _KEY_USAGES), ("extendedKeyUsage", _PURPOSES)):
        found = [known[usage] for usage in usages if usage in known]
        if found:
            lines.append(f"{extension}{',' if '=' in extension else '='}{','.join(found)}")
    if names:
        lines.append(f"subjectAltName={','.join(names)}")
    return "\n".join(lines) + "\n"


def _client_fault(wanted: CertificateRequest, usages: frozenset[str]) -> str:
    if wanted.dns or wanted.addresses or wanted.emails or wanted.uris:
        return "subjectAltNames are not signed for clients"
    if "client auth" not in usages:
        return "usages did not match [client auth]"
    return ""


def _kubelet_client_fault(wanted: CertificateRequest, usages: frozenset[str]) -> str:
    if wanted.organizations != _NODES:
        return "subject organization is not system:nodes"
    for what, found in (
        ("DNS", wanted.dns),
        ("Email", wanted.emails),
        ("IP", wanted.addresses),
        ("URI", wanted.uris),
    ):
        if found:
            return f"{what} subjectAltNames are not allowed"
    if not wanted.common_name.startswith(_NODE):
        return "subject common name does not begin with system:node:"
    return _usages_fault(usages, "client auth")


def _kubelet_serving_fault(wanted: CertificateRequest, usages: frozenset[str]) -> str:
    if wanted.organizations != _NODES:
        return "subject organization is not system:nodes"
    if not wanted.dns and not wanted.addresses:
        return "DNS or IP subjectAltName is required"
    for what, found in (("Email", wanted.emails), ("URI", wanted.uris)):
        if found:
            return f"{what} subjectAltNames are not allowed"
    invalid_name = next((name for name in wanted.dns if not _DNS.match(name)), None)
    if invalid_name is not None:
        return f"DNS subjectAltName {invalid_name!r} is none"
    if not wanted.common_name.startswith(_NODE):
        return "subject common name does not begin with system:node:"
    return _usages_fault(usages, "server auth")


def _usages_fault(usages: frozenset[str], purpose: str) -> str:
    required = {"digital signature", purpose}
    if usages in (required, required | {"key encipherment"}):
        return ""
    return f"usages did not match [{' '.join(sorted(required | {'key encipherment'}))}]"


_RULES: dict[str, Callable[[CertificateRequest, frozenset[str]], str]] = {
    CLIENT_SIGNER: _client_fault,
    KUBELET_CLIENT: _kubelet_client_fault,
    KUBELET_SERVING: _kubelet_serving_fault,
}
"""Signer -> function that returns why it does not sign a request; empty if it does."""
