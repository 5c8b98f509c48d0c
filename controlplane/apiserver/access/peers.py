"""The user of a client's certificate. TLS has checked it: without the server's authority the handshake fails.

ASGI has no place for it, so each connection's application adds it to the scope. Source: kubernetes.io "Authenticating"
(X509 client certificates).
"""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.apiserver.access.identity import AUTHENTICATED, User

USER = "nodeplug.user"
"""The key of the user in the scope."""


def recording_certificates(protocol: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with the user of each connection's certificate in the scope."""

    class RecordingCertificates(protocol):  # type: ignore[misc,valid-type]  # uvicorn chooses which
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            certificate = transport.get_extra_info("peercert")
            if certificate:
                self.app: ASGIApp = _with_user(self.app, user_of(certificate))

    return RecordingCertificates


def user_of(certificate: dict[str, Any]) -> User:
    """Return the user of a certificate: the common name, with organizations as groups."""
    found: dict[str, list[str]] = {}
    for (name, value), *_ in certificate.get("subject", ()):
        found.setdefault(name, []).append(value)
    common = found.get("commonName") or [""]
    return User(common[-1], (*found.get("organizationName", ()), AUTHENTICATED))


def _with_user(app: ASGIApp, user: User) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, USER: user}, receive, send)

    return answer
