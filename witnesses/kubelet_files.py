"""The kubelet's own state files as witnesses: `kubelet_internal_checkpoint` and `dra_manager_state`.

The first keeps dead pods until the kubelet writes it for another reason, and exists since the first list of any plugin.
The second exists since the kubelet's first start. A DaemonSet cannot see it: it does not mount that folder, which has
the node's key and the secrets of all pods. A missing file is no evidence, like one that cannot be read or decoded:
somebody may have removed it, and the kubelet writes it at its next change. Source: device manager specification,
section 7; DRA specification 4.4.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from checkpoint import kubelet_claims, kubelet_devices
from checkpoint.holdings import ClaimEntry, DeviceFile, UnitEntry
from checkpoint.kubelet_json import KubeletFileError

log = logging.getLogger("nodeplug.leases")
T = TypeVar("T")
# Bytes up to which a file's checksum is computed, at half a microsecond each. The kubelet replaces the file as a whole.
_MAX_VERIFIED = 65536


class KubeletFiles:
    """The files of one kubelet. Blocking: call from a thread, except `mark`, which is fast; one call at a time."""

    def __init__(self, device_plugins: Path, root: Path, serves: Callable[[str], bool], driver: str = "") -> None:
        """Read in the kubelet's folders, for the resources that `serves` accepts and the claims of `driver`."""
        self._devices: _File[Mapping[tuple[str, str], UnitEntry]] = _File(
            device_plugins / kubelet_devices.FILE_NAME, lambda raw: _units(_devices(raw), serves)
        )
        self._claims: _File[Mapping[str, ClaimEntry]] = _File(
            root / kubelet_claims.FILE_NAME, lambda raw: _claim_entries(kubelet_claims.load(raw), driver)
        )
        self._marked: object = None

    def mark(self) -> None:
        """Record the current device manager's file: only a later version counts as fresh."""
        self._marked = self._devices.identity()

    def devices(self) -> DeviceFile | None:
        """Return the entries of the device manager's file; None if it cannot be read."""
        units = self._devices.read()
        if units is None:
            return None
        return DeviceFile(units, is_fresh=self._devices.seen is None or self._devices.seen != self._marked)

    def claims(self) -> Mapping[str, ClaimEntry] | None:
        """Return the claims of this driver in the DRA manager's file, by uid; None if it cannot be read."""
        return self._claims.read()


class _File(Generic[T]):
    """A file that is decoded again only after it was written again."""

    def __init__(self, path: Path, decode: Callable[[bytes], T]) -> None:
        self._path = path
        self._decode = decode
        self._content: T | None = None
        self._problem = ""
        self.seen: object = None  # identity of the last decoded content; None: nothing, or it could not be read

    def identity(self) -> object:
        """Identify what is at the path now, which the kubelet replaces each time; None if there is no file."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size

    def read(self) -> T | None:
        identity = self.identity()
        if identity is not None and identity == self.seen:
            return self._content
        self.seen, problem = identity, ""
        try:
            self._content = self._decode(self._path.read_bytes())
        except FileNotFoundError:
            self.seen, self._content = None, None
        except (OSError, KubeletFileError, RecursionError, ValueError) as error:
            self._content = None
            if isinstance(error, OSError):
                self.seen = None  # the file itself can be unchanged: read it again next time
            problem = f"cannot read the kubelet's file {self._path}: {error}; leases of ended pods may not end"
        if problem and problem != self._problem:
            log.warning("%s", problem, extra={"is_current": lambda: self._problem == problem})
        self._problem = problem
        return self._content


def _devices(raw: bytes) -> kubelet_devices.DeviceCheckpoint:
    return kubelet_devices.load(raw) if len(raw) <= _MAX_VERIFIED else kubelet_devices.decode(raw)


def _units(found: kubelet_devices.DeviceCheckpoint, serves: Callable[[str], bool]) -> dict[tuple[str, str], UnitEntry]:
    return {
        (entry.resource, unit): UnitEntry(entry.pod_uid, entry.container, entry.response)
        for entry in found.entries or ()
        if serves(entry.resource)
        for unit in entry.device_ids
    }


def _claim_entries(found: kubelet_claims.ClaimCheckpoint, driver: str) -> dict[str, ClaimEntry]:
    return {
        claim.claim_uid: ClaimEntry(
            claim.namespace,
            claim.claim_name,
            frozenset(claim.pod_uids or ()),
            frozenset(f"{x.device_name}/{x.share_id}" if x.share_id else x.device_name for x in ours.devices or ()),
        )
        for claim in found.claims or ()
        if (ours := (claim.driver_state or {}).get(driver)) is not None
    }
