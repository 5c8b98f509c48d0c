"""ClusterTrustBundles, and the PodCertificateRequests by which a kubelet asks a signer for a pod's certificate.

No signer acts here. Neither the signature of a request nor the names in an issued certificate are checked.
Source: k8s.io/kubernetes pkg/apis/certificates/validation/validation.go, pkg/registry/certificates and
plugin/pkg/admission/certificates/ctbattest; the texts are upstream's.
"""

import base64
import binascii
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from controlplane.apiserver import columns
from controlplane.apiserver.access.authorization import Authorizer
from controlplane.apiserver.access.pem import pem_blocks
from controlplane.apiserver.access.signers import GROUP, may_act
from controlplane.apiserver.access.x509 import (
    Certificate,
    CertificateError,
    read_certificate,
    read_public_key,
    requested_key,
)
from controlplane.apiserver.internal_types import internal_form
from controlplane.apiserver.kinds import Column, Kind, Plain, Schema, Served, WriteContext
from controlplane.apiserver.message_schemas import kind_schema
from controlplane.apiserver.rules.signer_names import check_signer, is_own_signer
from controlplane.apiserver.status import forbidden, invalid
from controlplane.apiserver.unstructured_rules import Part, UnstructuredRules, as_written
from resourceapi.objects import Condition, ErrorList, from_dict
from resourceapi.objects.errors import OMITTED, Token
from resourceapi.objects.field_rules import add_invalid, conditions
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.metadata_rules import masked_prefix
from resourceapi.objects.names import dns_subdomain, label_key
from resourceapi.objects.release import Release

_BUNDLE, _BUNDLES = "ClusterTrustBundle", "clustertrustbundles"
_REQUEST, _REQUESTS = "PodCertificateRequest", "podcertificaterequests"
_IMMUTABLE = "field is immutable"
_CERTIFICATE = "CERTIFICATE"
_UNSHOWN = "<value omitted>"
_MAX_BUNDLE, _MAX_REQUEST, _MAX_CHAIN = 1024 * 1024, 10 * 1024, 100 * 1024  # bytes
_MAX_UID, _MAX_ANNOTATIONS = 128, 256 * 1024  # bytes
_DEFAULT_SECONDS, _MIN_SECONDS = 86400, 3600
_MAX_OWN_SECONDS, _MAX_SECONDS = 86400, 91 * 86400  # for Kubernetes' own signers, and for others
_RSA_BITS, _CURVES = (3072, 4096), ("P-256", "P-384", "P-521")
_ENDS = ("Issued", "Denied", "Failed")
_ISSUED, _OTHER_ENDS = _ENDS[0], _ENDS[1:]
_CLOCK_DIFFERENCE, _MIN_LIFETIME, _MARGIN = timedelta(minutes=5), timedelta(hours=1), timedelta(minutes=10)
_CHAIN = "status.certificateChain"
_TOO_EARLY = "must be at least 10 minutes after status.notBefore"
_TOO_LATE = "must be at least 10 minutes before status.notAfter"
_ENCODED = "must be set to the {} time encoded in the leaf certificate"


def trust_bundle_kind(authorizer: Authorizer) -> Kind:
    """Return the kind of trust bundles. `authorizer` decides who can attest for a signer."""
    schema = kind_schema(f"{GROUP}/v1", _BUNDLE, "The authorities that a signer's certificates are checked with.")
    return Kind(
        group=GROUP,
        plural=_BUNDLES,
        kind=_BUNDLE,
        namespaced=False,
        versions=(Served("v1", schema, must_be_current=True),),
        storage="v1",
        hashed_as=f"{GROUP}/v1beta1",
        rules=_BundleRules(authorizer, schema),
        columns=(Column("SignerName", columns.or_else("<none>", "spec", "signerName")),),
        fields={"spec.signerName": columns.at("spec", "signerName")},
    )


def pod_certificate_kind(clock: Callable[[], datetime], authorizer: Authorizer, release: Release) -> Kind:
    """Return the kind of pods' certificate requests. `authorizer` decides who can sign for a signer."""
    schema = kind_schema(f"{GROUP}/v1", _REQUEST, "A kubelet asks a signer for a pod's certificate.")
    return Kind(
        group=GROUP,
        plural=_REQUESTS,
        kind=_REQUEST,
        namespaced=True,
        versions=(Served("v1", schema, must_be_current=True),),
        storage="v1",
        hashed_as=f"{GROUP}/v1beta1",
        rules=_RequestRules(clock, authorizer, schema, release),
        status=True,
        columns=_COLUMNS,
        fields={f"spec.{name}": columns.at("spec", name) for name in ("signerName", "podName", "nodeName")},
    )


class _BundleRules(UnstructuredRules):
    def __init__(self, authorizer: Authorizer, schema: Schema) -> None:
        super().__init__(
            GROUP, _BUNDLE, "v1", {"v1": schema}, namespaced=False, check=_check_bundle, name_rule=lambda _: []
        )
        self._authorizer = authorizer

    def create(self, obj: Plain, context: WriteContext) -> Plain:
        self._check_attester(obj, context)
        return super().create(obj, context)

    def update(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        if not json_equal(new["spec"], old["spec"]):
            self._check_attester(new, context)
        return super().update(new, old, context)

    def _check_attester(self, bundle: Plain, context: WriteContext) -> None:
        """Check the right to attest for the signer. Raises ApiError 403."""
        signer = bundle["spec"].get("signerName") or ""
        if signer and not may_act(self._authorizer, context.caller.user, "attest", signer):
            why = f'user not permitted to attest for signerName "{signer}"'
            raise forbidden(GROUP, _BUNDLES, bundle["metadata"].get("name", ""), why)


def _check_bundle(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    signer, bundle = new["spec"].get("signerName") or "", new["spec"].get("trustBundle") or ""
    for member in ("generateName", "name"):
        name = new["metadata"].get(member) or ""
        if name:
            masked = masked_prefix(name) if member == "generateName" else name
            add_invalid(errors, f"metadata.{member}", name, _bundle_name(masked, signer))
    if signer:
        check_signer(errors, "spec.signerName", signer)
    if old is None or bundle != (old["spec"].get("trustBundle") or ""):
        _check_anchors(errors, bundle, "spec.trustBundle")
    if old is not None and signer != (old["spec"].get("signerName") or ""):
        errors.invalid("spec.signerName", signer, _IMMUTABLE)


def _bundle_name(name: str, signer: str) -> list[str]:
    """Return what is wrong with the name of a bundle, which begins with its signer."""
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return dns_subdomain(name)
    prefix = f"{signer.replace('/', ':')}:"
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return dns_subdomain(name.removeprefix(prefix))


def _check_anchors(errors: ErrorList, text: str, path: str) -> None:
    """Check the certificates of authorities, at least one, each of them once."""
    if len(text.encode()) > _MAX_BUNDLE:
        errors.too_long(path, _MAX_BUNDLE)
        return
    places: dict[bytes, list[int]] = {}
    faults = []
    for index, block in enumerate(pem_blocks(text.encode())):
        why = f"has bad block type: {block.type}" if block.type != _CERTIFICATE else ""
        why = why or ("has PEM block headers" if block.has_headers else _anchor_fault(block.data))
        if why:
            faults.append(f"entry {index} {why}")
        places.setdefault(block.data, []).append(index)
    for fault in faults:
        errors.invalid(path, _UNSHOWN, fault)
    if faults:
        return
    if not places:
        errors.invalid(path, _UNSHOWN, "at least one trust anchor must be provided")
    for indices in places.values():
        if len(indices) > 1:
            errors.invalid(path, _UNSHOWN, f"duplicate trust anchor (indices [{' '.join(map(str, indices))}])")


def _anchor_fault(data: bytes) -> str:
    try:
        return "" if read_certificate(data).is_authority else "does not have the CA bit set"
    except CertificateError:
        return "does not parse as X.509"


class _RequestRules(UnstructuredRules):
    def __init__(self, clock: Callable[[], datetime], authorizer: Authorizer, schema: Schema, release: Release) -> None:
        super().__init__(
            GROUP,
            _REQUEST,
            "v1",
            {"v1": schema},
            namespaced=True,
            status=True,
            fill=lambda obj: {**obj, "spec": {"maxExpirationSeconds": _DEFAULT_SECONDS, **obj["spec"]}},
            check=partial(_check_request, release=release),
            status_part=Part(as_written, partial(_check_request_status, clock=clock, release=release)),
        )
        self._authorizer = authorizer

    def update_status(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        changed = super().update_status(new, old, context)
        user, signer = context.caller.user, old["spec"].get("signerName") or ""
        is_changed = not json_equal(changed.get("status") or {}, old.get("status") or {})
        if is_changed and not may_act(self._authorizer, user, "sign", signer):
            errors = ErrorList()
            errors.forbidden("spec.signerName", f'User "{user.name}" is not permitted to "sign" for signer "{signer}"')
            raise invalid(GROUP, _REQUEST, old["metadata"]["name"], errors)
        return changed


def _check_request(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    spec = new["spec"]
    if old is not None:
        if not json_equal(spec, old["spec"]):
            errors.invalid("spec", internal_form("certificates.PodCertificateRequestSpec", spec, release), _IMMUTABLE)
        return
    signer = spec.get("signerName") or ""
    check_signer(errors, "spec.signerName", signer)
    _check_annotations(errors, spec.get("unverifiedUserAnnotations") or {}, "spec.unverifiedUserAnnotations")
    for thing in ("pod", "serviceAccount", "node"):
        name, uid = spec.get(f"{thing}Name") or "", spec.get(f"{thing}UID") or ""
        add_invalid(errors, f"spec.{thing}Name", Token(name) if thing == "node" else name, dns_subdomain(name))
        if not uid:
            errors.invalid(f"spec.{thing}UID", Token(uid), "must not be empty")
        if len(uid.encode()) > _MAX_UID:
            errors.too_long(f"spec.{thing}UID", _MAX_UID)
    seconds = spec.get("maxExpirationSeconds")
    if seconds is None:
        errors.required("spec.maxExpirationSeconds", "must be set")
        return
    most = _MAX_OWN_SECONDS if is_own_signer(signer) else _MAX_SECONDS
    if not _MIN_SECONDS <= seconds <= most:
        errors.invalid("spec.maxExpirationSeconds", seconds, f"must be in the range [{_MIN_SECONDS}, {most}]")
    if spec.get("stubPKCS10Request"):
        _check_stub(errors, _bytes(spec["stubPKCS10Request"]), "spec.stubPKCS10Request")
    else:
        why = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        errors.invalid("spec", OMITTED, why)


def _check_annotations(errors: ErrorList, annotations: Plain, path: str) -> None:
    for key in map(str.lower, annotations):
        found = label_key(key) if key else []
        if not key:
            errors.required(path)
        elif found:
            add_invalid(errors, path, key, found)
        elif "/" not in key:
            errors.invalid(path, key, 'must be a domain-prefixed key (such as "acme.io/foo")')
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        errors.too_long(path, _MAX_ANNOTATIONS)


def _check_stub(errors: ErrorList, data: bytes, path: str) -> None:
    """Check a request that contains only a key."""
    if len(data) > _MAX_REQUEST:
        errors.too_long(path, _MAX_REQUEST)
        return
    try:
        key = read_public_key(requested_key(data))
    except CertificateError:
        errors.invalid(path, OMITTED, "must be a valid PKCS#10 CSR")
        return
    if key is None:
        errors.invalid(path, OMITTED, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
    elif key.type == "RSA" and key.bits not in _RSA_BITS:
        errors.invalid(path, f"{key.bits}-bit modulus", "RSA keys must have modulus size 3072 or 4096")
    elif key.type not in ("RSA", "Ed25519", *_CURVES):
        errors.invalid(path, f"curve {key.type}", "elliptic public keys must use curve P256, P384, or P521")


def _check_request_status(
    errors: ErrorList, new: Plain, old: Plain | None, *, clock: Callable[[], datetime], release: Release
) -> None:
    """Check a status: it stays empty until the request ends, and then never changes."""
    if errors:
        return
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    found = status.get("conditions") or []
    _check_ends(errors, found)
    conditions(errors, "status.conditions", [from_dict(Condition, each) for each in found], release)
    if errors:
        return
    ends = {each.get("type") for each in found}
    if {each.get("type") for each in before.get("conditions") or ()} & {*_ENDS}:
        if not json_equal(status, before):
            why = "immutable after PodCertificateRequest is issued, denied, or failed"
            errors.invalid("status", OMITTED, why)
    elif ends & {*_OTHER_ENDS}:
        if status.keys() - {"conditions"}:
            why = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
            errors.invalid("status", OMITTED, why)
    elif _ISSUED in ends:
        fault = _issue_fault(new["spec"], status, clock())
        if fault is not None:
            errors.extend(fault)
    elif not json_equal(status, before):
        why = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
        errors.invalid("status", OMITTED, why)


def _check_ends(errors: ErrorList, found: list[Plain]) -> None:
    """Check that at most one condition ends the request, and that there is no other one."""
    count = 0
    for index, each in enumerate(found):
        path, kind, status = f"status.conditions.[{index}]", each.get("type") or "", each.get("status") or ""
        if kind not in _ENDS:
            errors.not_supported(f"{path}.type", kind, list(_ENDS), is_named=False)
            continue
        count += 1
        if count > 1:
            why = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            errors.invalid(f"{path}.type", kind, why)
        if status != "True":
            errors.not_supported(f"{path}.status", status, ["True"])


def _issue_fault(spec: Plain, status: Plain, now: datetime) -> ErrorList | None:
    """Return the first fault of an issued certificate, and of the times in the status."""
    errors = ErrorList()
    chain = status.get("certificateChain") or ""
    if len(chain.encode()) > _MAX_CHAIN:
        errors.too_long(_CHAIN, _MAX_CHAIN)
        return errors
    first = next(pem_blocks(chain.encode()), None)
    if first is None:
        errors.invalid(_CHAIN, chain, "issued certificate chain must contain at least one certificate")
        return errors
    if first.type != _CERTIFICATE:
        why = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        errors.invalid(_CHAIN, chain, why)
        return errors
    try:
        leaf = read_certificate(first.data)
    except CertificateError:
        errors.invalid(_CHAIN, chain, "leaf certificate does not parse as valid X.509")
        return errors
    if leaf.public_key != requested_key(_bytes(spec.get("stubPKCS10Request"))):
        errors.invalid(_CHAIN, chain, "leaf certificate was not issued to the requested public key")
        return errors
    _check_times(errors, spec, status, leaf, now)
    if not errors:
        _check_rest_of_chain(errors, chain)
    return errors


def _check_times(errors: ErrorList, spec: Plain, status: Plain, leaf: Certificate, now: datetime) -> None:
    for name in ("notBefore", "notAfter"):
        if not status.get(name):
            errors.required(f"status.{name}", "must be present and consistent with the issued certificate")
    if not status.get("beginRefreshAt"):
        why = "must be present and in the range [notbefore+10min, notafter-10min]"
        errors.required("status.beginRefreshAt", why)
    if errors:
        return
    begin, end, refresh = (datetime.fromisoformat(status[name]) for name in ("notBefore", "notAfter", "beginRefreshAt"))
    lifetime, most = leaf.not_after - leaf.not_before, spec.get("maxExpirationSeconds") or 0
    rules: tuple[tuple[bool, str, Any, str], ...] = (
        (begin == leaf.not_before, "status.notBefore", begin, _ENCODED.format("NotBefore")),
        (
            abs(begin - now) <= _CLOCK_DIFFERENCE,
            "status.notBefore",
            begin,
            "must be set to within 5 minutes of kube-apiserver's current time",
        ),
        (end == leaf.not_after, "status.notAfter", end, _ENCODED.format("NotAfter")),
        (lifetime >= _MIN_LIFETIME, _CHAIN, _nanoseconds(lifetime), "leaf certificate lifetime must be >= 1 hour"),
        (
            lifetime <= timedelta(seconds=most),
            _CHAIN,
            _nanoseconds(lifetime),
            f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})",
        ),
        (refresh - begin >= _MARGIN, "status.beginRefreshAt", refresh, _TOO_EARLY),
        (end - refresh >= _MARGIN, "status.beginRefreshAt", refresh, _TOO_LATE),
    )
    broken = next((rule for rule in rules if not rule[0]), None)
    if broken is not None:
        errors.invalid(*broken[1:])


def _check_rest_of_chain(errors: ErrorList, chain: str) -> None:
    for block in islice(pem_blocks(chain.encode()), 1, None):
        if block.type != _CERTIFICATE:
            why = "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
            errors.invalid(_CHAIN, chain, why)
            return
        try:
            read_certificate(block.data)
        except CertificateError:
            errors.invalid(_CHAIN, chain, "intermediate certificate does not parse as valid X.509")
            return


def _nanoseconds(duration: timedelta) -> int:
    """A duration as a refusal shows it: in Go it has 64 bits."""
    return min(duration // timedelta(microseconds=1) * 1000, 2**63 - 1)


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error:
        return b""


def _state(request: Plain) -> str:
    found = [each.get("type") for each in columns.at("status", "conditions")(request) or ()]
    return next((kind for kind in reversed(found) if kind in _ENDS), "Pending")


_COLUMNS = (
    Column("PodName", columns.at("spec", "podName")),
    Column("ServiceAccountName", columns.at("spec", "serviceAccountName")),
    Column("NodeName", columns.at("spec", "nodeName")),
    Column("SignerName", columns.at("spec", "signerName")),
    Column("State", _state),
    Column(
        "UnverifiedUserAnnotations",
        lambda request: columns.labels_text(columns.at("spec", "unverifiedUserAnnotations")(request)),
    ),
)
