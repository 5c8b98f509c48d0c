"""What the DRA manager knows of the claims of this node's pods, kept in `dra_manager_state`.

Everything here happens on one loop: between two waits nobody else reads or changes a claim, which is what the kubelet's
locks are for. Whether a claim is prepared is not in the file: after a restart a new sandbox has it prepared again.
Source: DRA specification, sections 4.2 and 4.4; correction 24.
"""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

from checkpoint import kubelet_claims
from checkpoint.kubelet_claims import ClaimState, DriverState, PreparedDevice
from checkpoint.kubelet_json import KubeletFileError
from kubelet.errors import ClaimError
from kubelet.state_file import StateFile
from resourceapi.objects import v1


class ClaimInfo:
    """A claim on this node."""

    def __init__(self, namespace: str, name: str, uid: str, drivers: Iterable[str] = ()) -> None:
        """A claim of which nothing is prepared yet, with devices of these drivers."""
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.pods: set[str] = set()  # uids
        self.devices: dict[str, list[PreparedDevice] | None] = dict.fromkeys(drivers)  # None: nothing was added yet
        self.is_prepared = False

    @classmethod
    def of_claim(cls, claim: v1.ResourceClaim) -> "ClaimInfo":
        """A claim as the API server has it. Raises `ClaimError` if it is not allocated."""
        meta = claim.metadata
        if claim.status.allocation is None:
            raise ClaimError(f"claim {meta.name} not allocated")
        drivers = (result.driver for result in claim.status.allocation.devices.results)
        return cls(meta.namespace or "default", meta.name, meta.uid, drivers)

    @classmethod
    def of_state(cls, state: ClaimState) -> "ClaimInfo":
        """A claim as the file has it."""
        info = cls(state.namespace, state.claim_name, state.claim_uid)
        info.pods = set(state.pod_uids or ())
        for driver, found in (state.driver_state or {}).items():
            info.devices[driver] = None if found.devices is None else list(found.devices)
        return info

    def state(self) -> ClaimState:
        """The claim as it is written."""
        drivers = {driver: DriverState(devices) for driver, devices in self.devices.items()}
        return ClaimState(self.uid, self.name, self.namespace, dict.fromkeys(self.pods), drivers)

    def add_device(self, driver: str, device: PreparedDevice) -> None:
        """A driver prepared a device, perhaps not for the first time: then it is there twice, as in the kubelet."""
        devices = self.devices.get(driver)
        self.devices[driver] = [*(devices or ()), device]

    def prepared_devices(self) -> Iterator[tuple[str, PreparedDevice]]:
        """(driver, device) of all drivers."""
        for driver, devices in self.devices.items():
            for device in devices or ():
                yield driver, device


class ClaimInfoCache:
    """The claims of this node, by namespace and name."""

    def __init__(self, folder: Path) -> None:
        """Of the kubelet whose state is in `folder`."""
        self._file = StateFile(folder / kubelet_claims.FILE_NAME, ClaimError)
        self._claims: dict[tuple[str, str], ClaimInfo] = {}

    async def load(self) -> None:
        """Read the file, or create it. Raises `ClaimError`: a kubelet does not start with a file that it cannot use."""
        try:
            raw = await asyncio.to_thread(_read, self._file.path)
            if raw is None:
                await self._file.write(kubelet_claims.encode(None))
                return
            found = kubelet_claims.load(raw)
        except (KubeletFileError, OSError, ClaimError) as error:
            raise ClaimError(
                "create ResourceClaim cache: GetOrCreate() on checkpoint state:"
                f" failed to get checkpoint {kubelet_claims.FILE_NAME}: {error}"
            ) from error
        for state in found.claims or ():
            self.add(ClaimInfo.of_state(state))

    async def save(self) -> None:
        """Return when the file has all that the cache has. Raises `ClaimError`."""
        await self._file.write(kubelet_claims.encode([info.state() for info in self._claims.values()]))

    async def close(self) -> None:
        """Wait for what is being written."""
        await self._file.close()

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        """A claim, None if it is not known."""
        return self._claims.get((namespace, name))

    def add(self, info: ClaimInfo) -> ClaimInfo:
        """Know a claim, instead of the one of its name that was known."""
        self._claims[info.namespace, info.name] = info
        return info

    def delete(self, info: ClaimInfo) -> None:
        """Forget a claim; one of the same name that came after it stays."""
        if self._claims.get((info.namespace, info.name)) is info:
            del self._claims[info.namespace, info.name]

    def claims(self) -> list[ClaimInfo]:
        """All of them."""
        return list(self._claims.values())

    def of_pod(self, uid: str) -> list[ClaimInfo]:
        """The claims that a pod refers to."""
        return [info for info in self._claims.values() if uid in info.pods]

    def pods(self) -> set[str]:
        """The uids of all pods that refer to a claim."""
        return {uid for info in self._claims.values() for uid in info.pods}


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
