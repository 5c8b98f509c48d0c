"""Publishes ResourceSlices: what the driver wants is on the API server, and stays there whatever others do to it."""

import logging
from collections.abc import Callable

from msgspec import Struct

from dra_plugin.slices.desired import DriverResources
from dra_plugin.slices.owner import Owner
from resourceapi.client import Client

logger = logging.getLogger(__name__)

ErrorHandler = Callable[[Exception, str], None]
"""Told of problems in the background, with a short message. All of them are retried: none is a reason to stop."""


class Statistics(Struct, frozen=True):
    """Successful writes since the start; a deletion of what was gone already is none."""

    creates: int = 0
    updates: int = 0
    deletes: int = 0


class Controller:
    """Keeps one driver's slices as they are desired; all methods are for the loop's thread.

    `owner` is normally the Node: then only slices of that node are looked at and written. With `reconcile_pool` the
    slices of exactly that pool are, and they carry no node name. `sync_delay` is the time in seconds from an event of
    the watch to the look at its pool, but slices that others deleted come back at once. `mutation_ttl` is how long own
    writes count more than an older view of the server, in seconds. Raises ValueError for an empty driver name.
    """

    def __init__(
        self,
        client: Client,
        driver: str,
        owner: Owner | None,
        *,
        resources: DriverResources | None = None,
        reconcile_pool: str = "",
        sync_delay: float = 30.0,
        mutation_ttl: float = 60.0,
        on_error: ErrorHandler | None = None,
    ) -> None: ...

    async def start(self) -> None:
        """Begin in the background; returns at once, also when no server can be reached."""

    async def stop(self) -> None:
        """End. What is published stays."""

    def update(self, resources: DriverResources) -> None:
        """Replace the desired state; it is stored in the background."""

    @property
    def statistics(self) -> Statistics:
        """How much was written."""
        raise NotImplementedError
