"""What of a cluster's controllers runs here after changes: the garbage collector, and the one that counts quotas."""

import asyncio
from contextlib import suppress

from controlplane.apiserver.collector import Collector
from controlplane.apiserver.quotas import QUOTAS
from controlplane.apiserver.rest import Rest
from controlplane.apiserver.status import ApiError

_MANAGER = "kube-controller-manager"


class Controllers:
    """They run `delay` seconds after a change."""

    def __init__(self, rest: Rest, delay: float) -> None:
        self._rest, self._store, self._delay = rest, rest.store, delay
        self._collector = Collector(rest)
        self._counted = 0

    async def run(self) -> None:
        """Run for ever; end it by cancelling."""
        subscription = self._store.subscribe()
        try:
            while True:
                await subscription.changed.wait()
                await asyncio.sleep(self._delay)
                subscription.changed.clear()
                while self._collector.collect() or self._count():
                    await self._store.commit()
                await self._store.commit()
        finally:
            self._store.unsubscribe(subscription)

    def _count(self) -> bool:
        """Have quotas say what is used; returns whether that changed anything."""
        version = self._store.version
        for quota in list(self._store.objects(QUOTAS)) if version != self._counted else ():
            counted = self._rest.quotas.counted(quota)
            if counted is not None:
                with suppress(ApiError):  # a policy's: as long as there is that, it stays uncounted
                    self._rest.tell_used(counted, _MANAGER)
        self._counted = version
        return self._store.version != version
