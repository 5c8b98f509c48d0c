"""CertificateSigningRequests: who requests which certificate, who approved it, and the certificate.

The spec never changes, and contains the user of the request. Only `approval` accepts the conditions Approved and
Denied, only `status` the certificate. Source: k8s.io/api certificates/v1, kubernetes.io "Certificates and Certificate
Signing Requests"; the texts are upstream's.
"""

import base64
import binascii
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from controlplane.apiserver import columns
from controlplane.apiserver.access.authorization import Authorizer
from controlplane.apiserver.access.identity import MASTERS, User
from controlplane.apiserver.access.pem import pem_blocks
from controlplane.apiserver.access.pkcs10 import RequestError, read_request
from controlplane.apiserver.access.signers import GROUP, may_act
from controlplane.apiserver.kinds import Column, Kind, Plain, Schema, Served, WriteContext
from controlplane.apiserver.message_schemas import kind_schema
from controlplane.apiserver.rules.signer_names import check_signer
from controlplane.apiserver.status import forbidden, invalid
from controlplane.apiserver.unstructured_rules import UnstructuredRules
from resourceapi.objects import ErrorList, ObjectMeta, format_time, from_dict, to_dict
from resourceapi.objects.field_rules import unique
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.metadata_rules import metadata_on_update

KIND, PLURAL = "CertificateSigningRequest", "certificatesigningrequests"
KIND_ID = f"{PLURAL}.{GROUP}"
APPROVAL = "approval"
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
_USAGES = (
    *("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment"),
    *("decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel"),
    *("ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime"),
    *("server auth", "signing", "timestamping"),
)
_MIN_EXPIRATION = 600  # seconds
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_LEGACY = "kubernetes.io/legacy-unknown"
_CONDITIONS = "status.conditions"


def certificates_kind(clock: Callable[[], datetime], authorizer: Authorizer) -> Kind:
    """Return the kind. `authorizer` decides who can approve for a signer."""
    schema = kind_schema(f"{GROUP}/v1", KIND, "Asks a signer for a certificate.")
    return Kind(
        group=GROUP,
        plural=PLURAL,
        kind=KIND,
        namespaced=False,
        versions=(Served("v1", schema),),
        storage="v1",
        rules=_Rules(clock, authorizer, schema),
        short_names=("csr",),
        status=True,
        other_parts=(APPROVAL,),
        columns=_COLUMNS,
        fields={"spec.signerName": columns.at("spec", "signerName")},
    )


def conditions_of(request: Plain, kind: str) -> list[Plain]:
    """Return a request's conditions of a type."""
    return [each for each in _all_conditions(request) if each.get("type") == kind]


def user_of(request: Plain) -> User:
    """Return the user who made a certificate request."""
    spec = request["spec"]
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("username") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def pem_of(request: Plain) -> bytes:
    """Return the PKCS #10 request as PEM; empty if it is not base64."""
    try:
        return base64.b64decode(request["spec"].get("request") or "", validate=True)
    except binascii.Error:
        return b""


class _Rules(UnstructuredRules):
    def __init__(self, clock: Callable[[], datetime], authorizer: Authorizer, schema: Schema) -> None:
        super().__init__(
            GROUP,
            KIND,
            "v1",
            {"v1": schema},
            namespaced=False,
            status=True,
            has_status_at_first=True,
            check=_check,
            name_rule=lambda _: [],
        )
        self._clock, self._authorizer = clock, authorizer

    def create(self, obj: Plain, context: WriteContext) -> Plain:
        spec = {name: item for name, item in (obj.get("spec") or {}).items() if name not in _REQUESTER_FIELDS}
        user = context.caller.user
        asked_by: Plain = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
        asked_by["extra"] = {key: list(values) for key, values in user.extra.items()}
        spec |= {name: item for name, item in asked_by.items() if item}
        _check_subject(obj["metadata"].get("name") or "", spec)
        return super().create({**obj, "spec": spec, "status": {}}, context)

    def update(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        return super().update({**new, "spec": old["spec"]}, old, context)

    def update_status(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        is_approval = context.subresource == APPROVAL
        status: Plain = {**(new.get("status") or {})}
        conditions = [dict(each) for each in _all_conditions(new)]
        errors = ErrorList()
        if is_approval:
            self._check_approver(old, context)
            status = {**(old.get("status") or {})}
        else:
            for kind in (APPROVED, DENIED):  # keep the old ones if the number is the same
                before, after = conditions_of(old, kind), [each for each in conditions if each.get("type") == kind]
                if len(before) == len(after):
                    kept = iter(before)
                    conditions = [next(kept) if each.get("type") == kind else each for each in conditions]
        status.pop("conditions", None)
        if conditions:
            status["conditions"] = [self._with_times(each, old) for each in conditions]
        changed: Plain = {**new, "spec": old["spec"], "status": status}
        if "metadata" in new:
            changed["metadata"] = to_dict(from_dict(ObjectMeta, new["metadata"]))
        _check(errors, changed, old)
        _check_change(errors, changed, old, is_approval=is_approval)
        after_meta, before_meta = (from_dict(ObjectMeta, obj["metadata"]) for obj in (changed, old))
        metadata_on_update(errors, after_meta, before_meta, context.release)
        if errors:
            raise invalid(GROUP, KIND, changed["metadata"]["name"], errors)
        return changed

    def _check_approver(self, request: Plain, context: WriteContext) -> None:
        """Check the right to approve: for the signer, or for all signers of its domain. Raises ApiError 403."""
        user, signer = context.caller.user, str(request["spec"].get("signerName") or "")
        if not may_act(self._authorizer, user, "approve", signer):
            why = f'user not permitted to approve requests with signerName "{signer}"'
            raise forbidden(GROUP, PLURAL, request["metadata"]["name"], why)

    def _with_times(self, condition: Plain, old: Plain) -> Plain:
        """Fill in missing times: the present, but an unchanged condition keeps its transition time."""
        now = format_time(self._clock())
        before = (each for each in conditions_of(old, str(condition.get("type"))))
        same = (each for each in before if each.get("status") == condition.get("status"))
        since = next((each["lastTransitionTime"] for each in same if each.get("lastTransitionTime")), now)
        timed = {**condition}
        timed["lastUpdateTime"] = condition.get("lastUpdateTime") or now
        timed["lastTransitionTime"] = condition.get("lastTransitionTime") or since
        return timed


def _check_subject(name: str, spec: Plain) -> None:
    """Refuse a certificate that would make its owner an administrator."""
    with contextlib.suppress(RequestError):
        wanted = read_request(pem_of({"spec": spec}))
        if spec.get("signerName") == CLIENT_SIGNER and MASTERS in wanted.organizations:
            why = f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            raise forbidden(GROUP, PLURAL, name, why)


def _check(errors: ErrorList, request: Plain, old: Plain | None) -> None:
    del old
    spec = request.get("spec") or {}
    try:
        read_request(pem_of({"spec": spec}))
    except RequestError as error:
        errors.invalid("spec.request", spec.get("request"), str(error))
    usages = spec.get("usages") or []
    if not usages:
        errors.required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            errors.not_supported(f"spec.usages[{index}]", usage, list(_USAGES))
    unique(errors, "spec.usages", usages)
    signer = spec.get("signerName") or ""
    if signer == _LEGACY:
        errors.invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        check_signer(errors, "spec.signerName", signer)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_EXPIRATION:
        errors.invalid(
            "spec.expirationSeconds", seconds, "may not specify a duration less than 600 seconds (10 minutes)"
        )
    _check_conditions(errors, _all_conditions(request))
    why = _certificate_fault((request.get("status") or {}).get("certificate"))
    if why:
        errors.invalid("status.certificate", "<certificate data>", why)


def _check_conditions(errors: ErrorList, conditions: list[Plain]) -> None:
    seen: list[str] = []
    for index, condition in enumerate(conditions):
        path, kind, status = f"{_CONDITIONS}[{index}]", condition.get("type") or "", condition.get("status") or ""
        allowed = ["True"] if kind in (APPROVED, DENIED, FAILED) else ["False", "True", "Unknown"]
        if not kind:
            errors.required(f"{path}.type")
        if not status:
            errors.required(f"{path}.status")
        elif status not in allowed:
            errors.not_supported(f"{path}.status", status, allowed)
        if {APPROVED: DENIED, DENIED: APPROVED}.get(kind) in seen:
            errors.invalid(_CONDITIONS, kind, "Approved and Denied conditions are mutually exclusive")
        if kind in seen:
            errors.duplicate(f"{path}.type", kind)
        seen.append(kind)


def _check_change(errors: ErrorList, new: Plain, old: Plain, *, is_approval: bool) -> None:
    for kind in (APPROVED, DENIED, FAILED):
        after, before = conditions_of(new, kind), conditions_of(old, kind)
        if len(after) < len(before):
            errors.forbidden(_CONDITIONS, f'updates may not remove a condition of type "{kind}"')
        elif len(after) > len(before) and kind != FAILED and not is_approval:
            errors.forbidden(_CONDITIONS, f'updates may not add a condition of type "{kind}"')
    issued, certificate = ((each.get("status") or {}).get("certificate") or "" for each in (old, new))
    if issued and not json_equal(issued, certificate):
        errors.forbidden("status.certificate", "updates may not modify existing certificate content")


def _certificate_fault(text: Any) -> str:
    if not text:
        return ""
    try:
        blocks = list(pem_blocks(base64.b64decode(text, validate=True)))
    except (binascii.Error, TypeError):
        blocks = []
    for block in blocks:
        if block.type != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{block.type}"'
        if block.has_headers:
            return "no PEM block headers are permitted"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _all_conditions(request: Plain) -> list[Plain]:
    status = request.get("status") or {}
    return [each for each in status.get("conditions") or () if isinstance(each, dict)]


def _condition_text(request: Plain) -> str:
    text = next((kind for kind in (DENIED, APPROVED) if conditions_of(request, kind)), "Pending")
    text += ",Failed" if conditions_of(request, FAILED) else ""
    return text + (",Issued" if (request.get("status") or {}).get("certificate") else "")


def _duration(request: Plain) -> str:
    seconds = request["spec"].get("expirationSeconds")
    return "<none>" if seconds is None else columns.age_text(seconds)


_REQUESTER_FIELDS = ("username", "uid", "groups", "extra")
_COLUMNS = (
    *columns.ONLY_AGE,
    Column("SignerName", columns.at("spec", "signerName")),
    Column("Requestor", columns.at("spec", "username")),
    Column("RequestedDuration", _duration),
    Column("Condition", _condition_text),
)
