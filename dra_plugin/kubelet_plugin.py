"""The gRPC side of the driver as a whole: its two sockets, its services, and what the kubelet said.

serve the driver's socket -> serve the registration socket -> the kubelet finds it, asks, and calls
"""

import asyncio
from pathlib import Path

from msgspec import Struct

from dra_plugin.claims import ClaimSource
from dra_plugin.driver import Driver
from dra_plugin.health import HealthBoard


class Folders(Struct, frozen=True):
    """Where the sockets lie; the kubelet sees both folders at the same paths."""

    registry: Path  # the kubelet's, /var/lib/kubelet/plugins_registry; it is waited for
    data: Path  # the driver's own, /var/lib/kubelet/plugins/<driver>; it is made


class Registration(Struct, frozen=True):
    """The kubelet's last word: registered, or why not."""

    registered: bool
    error: str = ""


class KubeletPlugin:
    """Serves a driver to the kubelet from `start` to `stop`."""

    def __init__(
        self,
        driver_name: str,
        driver: Driver | asyncio.Future[Driver],
        claims: ClaimSource,
        health: HealthBoard,
        folders: Folders,
        pod_uid: str = "",
    ) -> None:
        """Prepare. With a `pod_uid` the sockets have names of their own, so that two instances can serve at once.

        A `driver` that is still to come is waited for by each call, as long as the call's deadline lets it.
        """

    @property
    def endpoint(self) -> Path:
        """The driver's socket."""
        raise NotImplementedError

    @property
    def registration_status(self) -> Registration | None:
        """What the kubelet said last; None before it said anything."""
        raise NotImplementedError

    @property
    def errors(self) -> tuple[str, ...]:
        """Why a socket cannot be served now; empty when both are."""
        raise NotImplementedError

    async def start(self) -> None:
        """Serve, then offer for registration. What cannot be served yet is tried again until it can."""

    async def stop(self) -> None:
        """Sign off and stop serving; driver calls that run are given a few seconds to end. Idempotent."""
