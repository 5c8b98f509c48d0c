"""The DRA manager's cache of the claims of this node's pods, stored in `dra_manager_state`.

Everything here runs on one event loop, so that no other task reads or changes a claim between two awaits; the kubelet
uses locks for that. The file does not contain whether a claim is prepared: after a restart, a new sandbox prepares it
again.
Source: DRA specification, sections 4.2 and 4.4; correction 24.
"""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from checkpoint import kubelet_claims
from checkpoint.kubelet_claims import ClaimState, DriverState, PreparedDevice
from checkpoint.kubelet_json import KubeletFileError
from kubelet.errors import ClaimError
from kubelet.release import LATEST, Release
from kubelet.state_file import StateFile
from resourceapi.objects import v1

_OPERATIONS = {"NodePrepareResources", "NodeUnprepareResources"}


class ClaimInfo:
    """A claim on this node."""

    def __init__(self, namespace: str, name: str, uid: str, drivers: Iterable[str] = ()) -> None:
        """A claim with devices of these drivers, none of them prepared yet."""
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.pods: set[str] = set()  # uids
        self.devices: dict[str, list[PreparedDevice] | None] = dict.fromkeys(drivers)  # None: no devices yet
        self.is_prepared = False
        self.is_unpreparing = False  # for its last pod, from the first attempt until one succeeds

    @classmethod
    def from_claim(cls, claim: v1.ResourceClaim, release: Release = LATEST) -> "ClaimInfo":
        """Create it from the API object. Raises `ClaimError` if a kubelet of `release` cannot prepare the claim."""
        meta = claim.metadata
        if claim.status.allocation is None:
            raise ClaimError(f"ResourceClaim {meta.name}: not allocated")
        results = claim.status.allocation.devices.results
        drivers = dict.fromkeys(result.driver for result in results)
        if release.refuses_skipped_operations and any(_skipped(results, driver) for driver in drivers):
            raise ClaimError(
                f"ResourceClaim {meta.name}: DRAOptionalNodeOperations feature gate is disabled on kubelet"
            )
        return cls(meta.namespace or "default", meta.name, meta.uid, drivers)

    @classmethod
    def from_state(cls, state: ClaimState, release: Release) -> "ClaimInfo":
        """Create it from an entry of the state file, which can be of another release."""
        info = cls(state.namespace, state.claim_name, state.claim_uid)
        info.pods = set(state.pod_uids or ())
        for driver, found in (state.driver_state or {}).items():
            devices = None if found.devices is None else [_for_release(release, each) for each in found.devices]
            info.devices[driver] = devices
        return info

    def state(self) -> ClaimState:
        """Return the claim's entry in the state file."""
        drivers = {driver: DriverState(devices) for driver, devices in self.devices.items()}
        return ClaimState(self.uid, self.name, self.namespace, dict.fromkeys(self.pods), drivers)

    def add_devices(self, driver: str, devices: Iterable[PreparedDevice], *, replace: bool) -> None:
        """Add a driver's prepared devices; without `replace`, a repeated prepare adds them a second time."""
        known = () if replace else self.devices.get(driver) or ()
        self.devices[driver] = [*known, *devices] or None

    def prepared_devices(self) -> Iterator[tuple[str, PreparedDevice]]:
        """Yield (driver, device) for all drivers."""
        for driver, devices in self.devices.items():
            for device in devices or ():
                yield driver, device


class ClaimInfoCache:
    """The claims of this node, by namespace and name."""

    def __init__(self, folder: Path, release: Release = LATEST) -> None:
        """The cache of a kubelet of `release` whose state files are in `folder`."""
        self._release = release
        self._file = StateFile(
            folder / kubelet_claims.FILE_NAME, ClaimError, f"could not save checkpoint {kubelet_claims.FILE_NAME}"
        )
        self._claims: dict[tuple[str, str], ClaimInfo] = {}

    async def load(self) -> None:
        """Read or create the file. Raises `ClaimError`: a kubelet does not start with an unusable file."""
        failed = "create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to {} checkpoint {}: {}"
        try:
            raw = await asyncio.to_thread(_read, self._file.path)
            if raw is None:
                await self._file.write(kubelet_claims.encode(None))
                return
            found = kubelet_claims.load(raw)
        except (KubeletFileError, OSError) as error:
            raise ClaimError(failed.format("get", kubelet_claims.FILE_NAME, error)) from error
        except ClaimError as error:
            raise ClaimError(failed.format("store", kubelet_claims.FILE_NAME, error)) from error
        for state in found.claims or ():
            self.add(ClaimInfo.from_state(state, self._release))

    async def save(self, what: str = "state") -> None:
        """Write the cache to the file, and wait for it. Raises `ClaimError`; `what` is the subject of its message."""
        try:
            await self._file.write(kubelet_claims.encode([info.state() for info in self._claims.values()]))
        except ClaimError as error:
            raise ClaimError(f"checkpoint ResourceClaim {what}: {error}") from error

    async def close(self, *, discard: bool = False) -> None:
        """Wait for the running write, and without `discard` for queued ones."""
        await self._file.close(discard=discard)

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        """Return a claim; None if it is not in the cache."""
        return self._claims.get((namespace, name))

    def add(self, info: ClaimInfo) -> ClaimInfo:
        """Add a claim, or replace the one with the same name; return it."""
        self._claims[info.namespace, info.name] = info
        return info

    def delete(self, info: ClaimInfo) -> None:
        """Delete a claim; a newer one with the same name stays."""
        if self._claims.get((info.namespace, info.name)) is info:
            del self._claims[info.namespace, info.name]

    def claims(self) -> list[ClaimInfo]:
        """Return all claims."""
        return list(self._claims.values())

    def of_pod(self, uid: str) -> list[ClaimInfo]:
        """Return the claims that have a reference to a pod."""
        return [info for info in self._claims.values() if uid in info.pods]

    def pods(self) -> set[str]:
        """Return the uids of all pods that a claim has a reference to."""
        return {uid for info in self._claims.values() for uid in info.pods}


def _for_release(release: Release, device: PreparedDevice) -> PreparedDevice:
    share = (device.share_id or None) if release.has_share_ids else UNSET
    return msgspec.structs.replace(device, share_id=share)


def _skipped(results: Iterable[v1.DeviceRequestAllocationResult], driver: str) -> set[str]:
    """Return the operations that all of a driver's results skip."""
    skipped = [set(each.skip_node_operations) for each in results if each.driver == driver]
    return set.intersection(*(each | _OPERATIONS if "*" in each else each for each in skipped))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
