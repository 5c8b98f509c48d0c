"""Claims as read from the API server, checked: present, allocated, and with the uid that the kubelet named.

Each claim is read from the server at each call, as upstream's helper does, and not from a watch. A claim can be
allocated again under the same uid, and the kubelet sends only that uid. A node cannot watch only its own claims (no
field selector), and a token that can list all claims of a cluster is worth stealing.

Source: DRA specification, sections 2.6 and 3.12.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from checkpoint.holdings import ClaimName
from dra_plugin.driver import ClaimFailed, ClaimRef
from hostdevices.printable import printable
from resourceapi.client import AsyncClient, ClientError, Refused
from resourceapi.objects import DecodeError, v1
from resourceapi.objects.names import dns_label, dns_subdomain
from telemetry import RefusalReason

CLAIM_TIMEOUT = 20.0  # seconds for one claim; the kubelet's deadline is 45 s, and preparing takes part of that
WITNESS_TIMEOUT = 5.0  # seconds for the API server's answer about claims that no other witness names

# devices of a claim, and configurations: Kubernetes 1.34 to 1.37 allow 32, and a later release might allow more
MAX_ENTRIES = 256

_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")  # UUIDs, and the uids that tests use

Fetched: TypeAlias = v1.ResourceClaim | ClaimFailed


class ClaimSource(Protocol):
    """Where claims come from."""

    async def fetch(self, ref: ClaimRef) -> Fetched:
        """Return the allocated claim with the same uid, or the reason for its absence."""
        ...


class NoClaims:
    """Stands in without an API server: claims can be unprepared, and none can be prepared."""

    async def fetch(self, ref: ClaimRef) -> Fetched:
        """Return that reason."""
        return ClaimFailed(
            f"claim {ref.namespace}/{ref.name}: no resource is offered through DRA here any more, and no API server is"
            " configured; delete the pod"
        )


class ApiClaims:
    """Claims from an API server."""

    def __init__(self, client: AsyncClient, driver: str, pool: str, timeout: float = CLAIM_TIMEOUT) -> None:
        """Read through `client`, waiting for a claim at most `timeout` seconds.

        This node's devices are those of `driver` in `pool`.
        """
        self.on_server = client.any_version(v1.ResourceClaim)
        """All claims, in the version that the server supports."""
        self._driver_and_pool = driver, pool
        self._timeout = timeout

    async def fetch(self, ref: ClaimRef) -> Fetched:
        """Read a claim and check it (see `ClaimSource`)."""
        named = f"{ref.namespace}/{ref.name}"
        try:
            async with asyncio.timeout(self._timeout):
                claim = await self.on_server.get(ref.name, ref.namespace)
        except Refused as refusal:
            counted_as: RefusalReason = "invalid-request" if refusal.code == 404 else "no-answer"
            return ClaimFailed(f"retrieve claim {named}: {refusal.message}", counted_as)
        except (ClientError, DecodeError) as error:
            return ClaimFailed(f"retrieve claim {named}: {error}", "no-answer")
        except TimeoutError:
            why = f"retrieve claim {named}: no answer from the API server within {self._timeout:g} s"
            return ClaimFailed(why, "no-answer")
        if claim.status.allocation is None:
            return ClaimFailed(f"claim {named} not allocated", "invalid-request")
        if claim.metadata.uid != ref.uid:
            return ClaimFailed(f"claim {named} got replaced", "invalid-request")
        devices = claim.status.allocation.devices
        if max(len(devices.results), len(devices.config)) > MAX_ENTRIES:
            found = f"{len(devices.results)} devices and {len(devices.config)} configurations"
            why = f"claim {named} has {found}, the limit is {MAX_ENTRIES} of each: no API server stores such a claim"
            return ClaimFailed(why, "invalid-request")
        return claim

    async def wanted(self, claims: Iterable[ClaimName]) -> Mapping[str, bool]:
        """Return by uid whether the API server wants claims prepared here; claims without an answer are left out.

        It does not want claims that are gone, replaced, no longer allocated, or allocated to another node.
        """
        named = list(claims)
        tasks = [asyncio.ensure_future(self._is_wanted(claim)) for claim in named]
        try:
            await asyncio.wait(tasks, timeout=WITNESS_TIMEOUT)
            return {x.uid: found for x, task in zip(named, tasks, strict=True) if (found := _result(task)) is not None}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _is_wanted(self, claim: ClaimName) -> bool | None:
        try:
            found = await self.on_server.get(claim.name, claim.namespace)
        except Refused as error:
            return False if error.is_missing else None
        except (ClientError, DecodeError):
            return None
        allocation = found.status.allocation if found.metadata.uid == claim.uid else None
        return allocation is not None and any(
            (x.driver, x.pool) == self._driver_and_pool for x in allocation.devices.results
        )


def _result(task: "asyncio.Future[bool | None]") -> bool | None:
    return task.result() if task.done() and not task.cancelled() else None


def reference_problem(ref: ClaimRef) -> str:
    """Return why these cannot be a claim's name, namespace and uid, which are used in paths; empty if they can."""
    if not _UID.fullmatch(ref.uid):
        rule = "must be 1 to 128 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
        return f"claim uid '{printable(ref.uid)}': {rule}"
    for what, name, problems in (
        ("namespace", ref.namespace, dns_label(ref.namespace)),
        ("name", ref.name, dns_subdomain(ref.name)),
    ):
        if problems:
            return f"claim {what} '{printable(name)}': {problems[0]}"
    return ""
