"""What the reconciler needs from the DRA side (`ClaimFront`): restore lost leases of a claim, or end a claim."""

import asyncio
from collections.abc import Set

from cdi import CdiError
from checkpoint import LeaseRefused, LedgerUnavailable
from checkpoint.holdings import ClaimName
from dra_plugin.errors import DraPluginError
from dra_plugin.preparing.claim_plan import DeviceChanged
from dra_plugin.preparing.prepare import Preparer
from dra_plugin.serving.claims import WITNESS_TIMEOUT, ApiClaims
from hostdevices import HostDevicesError
from hostdevices.errors import HostExhausted
from resourceapi.client import ClientError, Refused
from resourceapi.objects import DecodeError


class ClaimRestorer:
    """Restores and ends claims on behalf of the reconciler (`checkpoint.fronts.ClaimFront`)."""

    def __init__(self, claims: ApiClaims | None, preparer: Preparer) -> None:
        """Read claims from `claims`; without an API server nothing can be restored."""
        self._claims = claims
        self._preparer = preparer

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        """Lease again what a claim has and was lost; return why that cannot be done yet, empty where it is done.

        Of a claim that is over to the API server, pods keep the `units` until they end. Raises `LeaseRefused` where it
        cannot be done at all.
        """
        if self._claims is None:
            return ""
        try:
            async with asyncio.timeout(WITNESS_TIMEOUT):
                found = await self._claims.on_server.get(claim.name, claim.namespace)
        except TimeoutError:
            return f"no answer from the API server within {WITNESS_TIMEOUT:g} s"
        except (ClientError, DecodeError) as error:
            if not (isinstance(error, Refused) and error.is_missing):
                return str(error)
            found = None
        try:
            if found is None or not self._preparer.lost.has(found, claim.uid, units):
                await self._preparer.lost.keep(claim, units)
            else:
                await self._preparer.lost.restore(found)
        except (LedgerUnavailable, DeviceChanged, HostExhausted) as error:
            return str(error)
        except (DraPluginError, CdiError, HostDevicesError, OSError) as error:
            raise LeaseRefused(str(error), "") from error
        return ""

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        """Undo what was done for a claim that is over, unless somebody works for it or was answered since then."""
        await self._preparer.end(claim, unless_answered_since)
