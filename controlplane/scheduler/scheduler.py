"""The scheduler as a whole: looks at the cluster whenever something changes, and does what is to be done."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

from controlplane.structured import Features
from resourceapi.client import Client

DEFAULT_NAME = "default-scheduler"
BINDING_TIMEOUT = 600.0
"""Seconds that binding conditions are waited for."""


def _now() -> datetime:
    return datetime.now(UTC)


class Scheduler:
    """What kube-scheduler and the claim and taint controllers do for devices, on the loop that starts it.

    `client` leads to any API server. Only pods with `schedulerName` `name` (or without one) are bound. `now` says what
    time it is; after changing it call `wake`.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str = DEFAULT_NAME,
        features: Features | None = None,
        binding_timeout: float = BINDING_TIMEOUT,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._client = client
        self._name = name
        self._features = features or Features()
        self._binding_timeout = binding_timeout
        self._now = now

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Begin; returns when the cluster has been read once. Raises ClientError if the server has no claims."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End; what was begun with the server is finished first. Idempotent."""
        raise NotImplementedError

    def wake(self) -> None:
        """Look at everything again, though nothing may have changed."""
        raise NotImplementedError
