"""What of a cluster's controllers runs here after changes: the garbage collector, and the one that counts quotas."""

import asyncio
import logging
from contextlib import suppress

from controlplane.apiserver.collector import Collector
from controlplane.apiserver.quotas import QUOTAS
from controlplane.apiserver.rest import Rest
from controlplane.apiserver.status import ApiError

_MANAGER = "kube-controller-manager"

log = logging.getLogger(__name__)


class Controllers:
    """They run `delay` seconds after a change."""

    def __init__(self, rest: Rest, delay: float) -> None:
        self._rest, self._store, self._delay = rest, rest.store, delay
        self._collector = Collector(rest)
        self._counted = 0

    async def run(self) -> None:
        """Run for ever; end it by cancelling. What fails, as on a full disk, is tried again after the next change."""
        subscription = self._store.subscribe()
        subscription.changed.set()  # a server that was killed may have left something to do
        try:
            while True:
                await subscription.changed.wait()
                await asyncio.sleep(self._delay)
                subscription.changed.clear()
                try:
                    while await self._collector.collect() or await self._count():
                        await self._store.commit()
                    await self._store.commit()
                except Exception:
                    log.exception("the controllers of the cluster could not finish")
        finally:
            self._store.unsubscribe(subscription)

    async def _count(self) -> bool:
        """Have quotas say what is used; returns whether anything has changed meanwhile."""
        version = self._store.version
        for quota in list(self._store.objects(QUOTAS)) if version != self._counted else ():
            counted = await asyncio.to_thread(self._rest.quotas.counted, quota)  # thousands of pods take their time
            if counted is not None:
                with suppress(ApiError):  # a write was charged to it meanwhile: next time; or a policy refuses
                    self._rest.publish_usage(counted, _MANAGER)
        self._counted = version
        return self._store.version != version
