"""Tokens of service accounts: issued on request (TokenRequest), valid until they expire or a bound object is deleted.

They are JSON web tokens that only this server can verify. Its key is made at the start, so a restart invalidates them
all, like the server's own token. A token that is bound to a pod names the pod's node too; one that is bound to a node
names that node. Source: KEP-1205, KEP-4193.
"""

import base64
import hashlib
import hmac
import secrets
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from controlplane.apiserver.access.identity import User, account
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import bad_request, conflict, invalid, not_found
from controlplane.apiserver.store import Store
from resourceapi.objects import ErrorList, format_time

AUDIENCE = "https://kubernetes.default.svc.cluster.local"
ACCOUNTS = "serviceaccounts"
_API_VERSION = "authentication.k8s.io/v1"
_HEADER = {"alg": "HS256", "typ": "JWT"}
_DEFAULT_SECONDS = 3600
_MIN_SECONDS, _MAX_SECONDS = 600, 2**32
_BINDABLE = {"Pod": "pods", "Node": "nodes", "Secret": "secrets"}
_PREFIX = "authentication.kubernetes.io/"


class Tokens:
    """Issues and verifies tokens. `clock` returns the time in UTC."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        self._key = secrets.token_bytes(32)

    def issue(self, namespace: str, name: str, request: Plain) -> Plain:
        """Return the TokenRequest with its token. Raises ApiError."""
        found = self._store.get(ACCOUNTS, (namespace, name))
        if found is None:
            raise not_found("", ACCOUNTS, name)
        spec = request.get("spec") or {}
        seconds = spec.get("expirationSeconds") or _DEFAULT_SECONDS
        _check_seconds(seconds)
        audiences = list(spec.get("audiences") or ()) or [AUDIENCE]
        now = self._clock()
        reference = spec.get("boundObjectRef")
        bound = self._bound(namespace, name, reference) if reference is not None else {}
        uid = found["metadata"]["uid"]
        begin, end = int(now.timestamp()), int((now + timedelta(seconds=seconds)).timestamp())
        claims = {
            "aud": audiences,
            "exp": end,
            "iat": begin,
            "iss": AUDIENCE,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}, **bound},
            "nbf": begin,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        expires = format_time(datetime.fromtimestamp(end, UTC))
        return {
            "kind": "TokenRequest",
            "apiVersion": _API_VERSION,
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": format_time(now)},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
            "status": {"token": self._signed(claims), "expirationTimestamp": expires},
        }

    def user(self, token: str) -> User | None:
        """Return the user of a token. None if it is not this server's, has expired, or a bound object was deleted."""
        claims = self._claims(token)
        if claims is None or not claims["nbf"] <= self._clock().timestamp() < claims["exp"]:
            return None
        if AUDIENCE not in claims["aud"]:
            return None
        private = claims["kubernetes.io"]
        namespace, who = private["namespace"], private["serviceaccount"]
        if not self._exists(ACCOUNTS, namespace, who):
            return None
        extra = {f"{_PREFIX}credential-id": (f"JTI={claims['jti']}",)}
        for member in ("pod", "node", "secret"):
            if member not in private:
                continue
            is_optional = member == "node" and "pod" in private  # the node of a bound pod can be gone
            where = "" if member == "node" else namespace
            if not is_optional and not self._exists(f"{member}s", where, private[member]):
                return None
            if member != "secret":
                extra[f"{_PREFIX}{member}-name"] = (private[member]["name"],)
                if private[member].get("uid"):
                    extra[f"{_PREFIX}{member}-uid"] = (private[member]["uid"],)
        return account(namespace, who["name"], who["uid"], extra)

    def _bound(self, namespace: str, name: str, reference: Plain) -> dict[str, Plain]:
        """The claims of the object to which a token is bound."""
        kind = str(reference.get("kind"))
        plural = _BINDABLE.get(kind) if reference.get("apiVersion") in ("v1", None, "") else None
        if plural is None:
            raise bad_request(f"cannot bind token to object of type {reference.get('apiVersion')}, Kind={kind}")
        wanted = str(reference.get("name") or "")
        found = self._store.get(plural, ("" if kind == "Node" else namespace, wanted))
        if found is None:
            raise not_found("", plural, wanted)
        uid = found["metadata"]["uid"]
        if reference.get("uid") and reference["uid"] != uid:
            text = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record."
            raise conflict("", kind, wanted, f"{text} The object might have been deleted and then recreated")
        bound: dict[str, Plain] = {kind.lower(): {"name": wanted, "uid": uid}}
        if kind == "Pod":
            spec = found.get("spec") or {}
            if (spec.get("serviceAccountName") or "default") != name:
                text = (
                    f'cannot bind token for serviceaccount "{name}" to pod running with different serviceaccount name.'
                )
                raise bad_request(text)
            if spec.get("nodeName"):
                node = self._store.get("nodes", ("", spec["nodeName"]))
                bound["node"] = {"name": spec["nodeName"]} | ({"uid": node["metadata"]["uid"]} if node else {})
        return bound

    def _exists(self, table: str, namespace: str, reference: Plain) -> bool:
        found = self._store.get(table, (namespace, reference["name"]))
        return found is not None and found["metadata"]["uid"] == reference.get("uid")

    def _signed(self, claims: Plain) -> str:
        text = f"{_encoded(msgspec.json.encode(_HEADER))}.{_encoded(msgspec.json.encode(claims))}"
        return f"{text}.{self._signature(text)}"

    def _signature(self, text: str) -> str:
        return _encoded(hmac.digest(self._key, text.encode(), hashlib.sha256))

    def _claims(self, token: str) -> dict[str, Any] | None:
        text, _, signature = token.rpartition(".")
        if not text or not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return None
        payload = text.partition(".")[2]
        claims: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return claims


def _check_seconds(seconds: int) -> None:
    errors = ErrorList()
    if seconds < _MIN_SECONDS:
        errors.invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > _MAX_SECONDS:
        errors.invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if errors:
        raise invalid("authentication.k8s.io", "TokenRequest", "", errors)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
