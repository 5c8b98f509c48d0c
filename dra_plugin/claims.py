"""Claims as the API server has them, checked: there, allocated, and the ones that the kubelet means.

Source: DRA specification, sections 2.6 and 3.12.
"""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias

from dra_plugin.driver import ClaimFailed, ClaimRef
from resourceapi.client import AnyVersion, Client, ClientError, Refused
from resourceapi.objects import DecodeError, v1
from resourceapi.objects.names import dns_label, dns_subdomain

PATIENCE = 20.0  # seconds for a claim; the kubelet gives a call 45, and preparing takes some
_AT_ONCE = 8  # requests; the client keeps as many connections

_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")  # UUIDs, and what tests call one
_SHOWN = 80  # characters of a name that is refused

Fetched: TypeAlias = v1.ResourceClaim | ClaimFailed


class ClaimSource(Protocol):
    """Where claims come from."""

    async def fetch(self, ref: ClaimRef) -> Fetched:
        """Return the claim, allocated and with the same uid, or why there is none."""
        ...


class ApiClaims:
    """Claims from an API server."""

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        """Read through `client`, in threads of our own: an API server that hangs holds up nothing else.

        `patience` is how long a claim is waited for, in seconds.
        """
        self.on_server: AnyVersion[v1.ResourceClaim] = client.any_version(v1.ResourceClaim)
        """All claims, in whichever version the server has; its methods block."""
        self._patience = patience
        self._threads = ThreadPoolExecutor(_AT_ONCE, "claims")

    async def fetch(self, ref: ClaimRef) -> Fetched:
        """Read a claim and check it (see `ClaimSource`)."""
        named = f"{ref.namespace}/{ref.name}"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._patience):
                claim = await loop.run_in_executor(self._threads, self.on_server.get, ref.name, ref.namespace)
        except Refused as refusal:
            return ClaimFailed(f"retrieve claim {named}: {refusal.message}")
        except (ClientError, DecodeError) as error:
            return ClaimFailed(f"retrieve claim {named}: {error}")
        except TimeoutError:
            return ClaimFailed(f"retrieve claim {named}: no answer from the API server within {self._patience:g} s")
        if claim.status.allocation is None:
            return ClaimFailed(f"claim {named} not allocated")
        if claim.metadata.uid != ref.uid:
            return ClaimFailed(f"claim {named} got replaced")
        return claim

    def close(self) -> None:
        """Start no more requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def why_malformed(ref: ClaimRef) -> str:
    """Return why this cannot be a claim's name, namespace and uid: all three end up in paths. Empty if it can."""
    if not _UID.fullmatch(ref.uid):
        rule = "must be 1 to 128 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
        return f"claim uid {_shown(ref.uid)}: {rule}"
    for what, name, complaints in (
        ("namespace", ref.namespace, dns_label(ref.namespace)),
        ("name", ref.name, dns_subdomain(ref.name)),
    ):
        if complaints:
            return f"claim {what} {_shown(name)}: {complaints[0]}"
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
