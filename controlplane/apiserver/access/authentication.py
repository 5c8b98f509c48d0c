"""Authentication: by a certificate, the server's own token, or a service account's token; and impersonation.

Source: kubernetes.io "Authenticating", "User impersonation".
"""

import base64
import contextlib
import hmac
import urllib.parse

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from controlplane.apiserver.access.identity import ADMIN, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User
from controlplane.apiserver.access.peers import USER
from controlplane.apiserver.access.tokens import Tokens
from controlplane.apiserver.status import bad_request, forbidden, unauthorized
from resourceapi.objects import quoted_text

_EXTRA = "impersonate-extra-"
_ANONYMOUS = "system:anonymous"


class Authenticator:
    """Accepts the server's token, if it has one, and those of service accounts. Without a token, every user is ADMIN.

    `has_anonymous`: a request without a credential is anonymous; authorization then decides what it can do.
    """

    def __init__(self, token: str, tokens: Tokens, *, has_anonymous: bool) -> None:
        self._token, self.tokens = token, tokens
        self.has_anonymous = has_anonymous and bool(token)

    def move_token_to_header(self, scope: Scope) -> Scope:
        """Return the request without the token with which its path can begin (kubeconfig.py).

        The token moves to a header, unless a header has a credential already.
        """
        token, slash, rest = scope["path"][1:].partition("/")
        if not token or self.of_token(token.encode()) is None:
            return scope
        headers = scope["headers"]
        if not any(name == b"authorization" for name, _ in headers):
            headers = [*headers, (b"authorization", b"Bearer " + token.encode())]
        return {**scope, "path": slash + rest, "headers": headers}

    def user(self, request: Request) -> User:
        """Return the user of a request. Raises ApiError 401, or 403 if the user cannot impersonate others."""
        by_certificate: User | None = request.scope.get(USER)
        return _impersonated(by_certificate or self._authenticated(_credential(request)), request.headers)

    def of_token(self, token: bytes) -> User | None:
        """Return the user of a token: the server's own, or a valid one of a service account. None for any other."""
        if self._token and hmac.compare_digest(token, self._token.encode()):
            return ADMIN
        return self.tokens.user(token.decode("latin-1")) if token.count(b".") == 2 else None

    def _authenticated(self, credential: bytes) -> User:
        found = self.of_token(credential)
        if found is not None:
            return found
        if self.has_anonymous and not credential:
            return User(_ANONYMOUS, (UNAUTHENTICATED,))
        if self._token:
            raise unauthorized()
        return ADMIN


def _impersonated(user: User, headers: Headers) -> User:
    """The user that the headers name. Only an administrator can impersonate."""
    name, uid = headers.get("Impersonate-User", ""), headers.get("Impersonate-Uid", "")
    groups = [*headers.getlist("Impersonate-Group")]
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.startswith(_EXTRA):
            extra.setdefault(urllib.parse.unquote(header.removeprefix(_EXTRA)), []).append(value)
    if not name:
        if uid or groups or extra:
            raise bad_request(_without_user(uid, groups, extra))
        return user
    if MASTERS not in user.groups:
        why = f'User "{user.name}" cannot impersonate resource "users" in API group "" at the cluster scope'
        raise forbidden("", "users", name, why)
    parts = name.split(":")
    if not groups and parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"]
    of_all = UNAUTHENTICATED if name == _ANONYMOUS else AUTHENTICATED
    if not {AUTHENTICATED, UNAUTHENTICATED} & {*groups}:
        groups.append(of_all)
    extras = {key: tuple(values) for key, values in extra.items()}
    return User(name, tuple(groups), uid, extras)


def _without_user(uid: str, groups: list[str], extra: dict[str, list[str]]) -> str:
    """Why there is no user to impersonate, with the request in Go's syntax."""
    shown = ", ".join(f"{quoted_text(key)}:{_go_strings(extra[key])}" for key in sorted(extra))
    members = f"Extra:map[string][]string{{{shown}}}" if extra else "Extra:map[string][]string(nil)"
    found = f'&user.DefaultInfo{{Name:"", UID:{quoted_text(uid)}, Groups:{_go_strings(groups)}, {members}}}'
    return f"requested {found} without impersonating a user name"


def _go_strings(texts: list[str]) -> str:
    return f"[]string{{{', '.join(map(quoted_text, texts))}}}" if texts else "[]string(nil)"


def _credential(request: Request) -> bytes:
    """The bearer token, or the password of basic authentication."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(text, validate=True).partition(b":")[2]
    return text.strip().encode() if scheme.lower() == "bearer" else b""
