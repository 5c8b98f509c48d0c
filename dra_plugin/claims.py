"""Claims as the API server has them, checked: there, allocated, and the ones that the kubelet means.

Source: DRA specification, sections 2.6 and 3.12.
"""

from typing import Protocol, TypeAlias

from dra_plugin.driver import ClaimFailed, ClaimRef
from resourceapi.client import Client
from resourceapi.objects import v1

Fetched: TypeAlias = v1.ResourceClaim | ClaimFailed


class ClaimSource(Protocol):
    """Where claims come from."""

    async def fetch(self, ref: ClaimRef) -> Fetched:
        """Return the claim, allocated and with the same uid, or why there is none. Never raises."""
        ...


class ApiClaims:
    """Claims from an API server."""

    def __init__(self, client: Client) -> None:
        """Read through `client`, in threads of our own: an API server that hangs holds up nothing else."""

    async def fetch(self, ref: ClaimRef) -> Fetched:
        """Read a claim and check it (see `ClaimSource`)."""
        raise NotImplementedError

    def close(self) -> None:
        """Start no more requests."""
