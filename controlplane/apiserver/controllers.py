"""The controllers that run after changes: the garbage collector, and those for the status of quotas and budgets."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from controlplane.apiserver.collector import Collector
from controlplane.apiserver.options import WriteOptions
from controlplane.apiserver.pods import budgets
from controlplane.apiserver.quotas import QUOTAS
from controlplane.apiserver.rest import Rest
from controlplane.apiserver.status import ApiError

_MANAGER = "kube-controller-manager"

log = logging.getLogger(__name__)


class Controllers:
    """Runs the controllers `delay` seconds after a change."""

    def __init__(self, rest: Rest, delay: float) -> None:
        self._rest, self._store, self._delay = rest, rest.store, delay
        self._collector = Collector(rest)
        self._counted = 0

    async def run(self) -> None:
        """Run until cancelled. After a failure, as on a full disk, the next change starts another attempt."""
        subscription = self._store.subscribe()
        subscription.changed.set()  # a server that was killed can have left something to do
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
        """Update the status of quotas and budgets. Return whether any object has changed meanwhile."""
        version = self._store.version
        for quota in list(self._store.objects(QUOTAS)) if version != self._counted else ():
            # takes long with thousands of pods
            counted = await asyncio.to_thread(self._rest.quotas.with_current_usage, quota)
            if counted is not None:
                with suppress(ApiError):  # a write was charged to it meanwhile (done next time), or a policy refuses
                    self._rest.publish_usage(counted, _MANAGER)
        for budget in list(self._store.objects(budgets.BUDGETS)) if version != self._counted else ():
            counted = await asyncio.to_thread(
                budgets.counted, self._store, self._rest.registry, budget, self._rest.clock()
            )
            if counted is not None:
                with suppress(ApiError):  # it changed meanwhile, for example by an eviction: done next time
                    self._publish(counted)
        self._counted = version
        return self._store.version != version

    def _publish(self, budget: dict[str, Any]) -> None:
        target = budgets.status_target(self._rest.registry, budget)
        self._rest.update(target, budgets.typed(budget), WriteOptions(), _MANAGER)
