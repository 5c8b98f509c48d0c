"""What the reconciler uses of the DRA side: restore the lost leases of a claim, or end a claim (`DraApi`)."""

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
    """Restores and ends claims on behalf of the reconciler (`checkpoint.plugin_apis.DraApi`)."""

    def __init__(self, claims: ApiClaims | None, preparer: Preparer) -> None:
        """Read claims from `claims`; without an API server nothing can be restored."""
        self._claims = claims
        self._preparer = preparer

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        """Restore the lost leases of a claim; return why that is not possible yet, or an empty text on success.

        If the API server has no such claim any more, the pods keep the `units` until they end. Raises `LeaseRefused` if
        the leases can never be restored.
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
            if found is None or not self._preparer.lost.holds_units(found, claim.uid, units):
                await self._preparer.lost.reserve(claim, units)
            else:
                await self._preparer.lost.restore(found)
        except (LedgerUnavailable, DeviceChanged, HostExhausted) as error:
            return str(error)
        except (DraPluginError, CdiError, HostDevicesError, OSError) as error:
            raise LeaseRefused(str(error), "") from error
        return ""

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        """Undo a claim that is over, unless work for it is under way or it was answered since that time."""
        await self._preparer.end(claim, unless_answered_since)
