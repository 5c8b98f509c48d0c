"""The files of a prepared claim: its CDI specs and its metadata. Blocking: call from a thread.

Rule: a file that a container mounts is written before the spec that mounts it, and removed after it.
"""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import cdi
from dra_plugin.driver import ClaimRef
from dra_plugin.errors import DraPluginError
from dra_plugin.preparing.claim_record import Record
from dra_plugin.preparing.metadata_files import MetadataFolder
from hostdevices import HostDevicesError

_OWNER = "dra"  # the owner's name in the names of files in the CDI directory
_WRITE_ERRORS = (OSError, DraPluginError, cdi.CdiError, HostDevicesError)
Describe: TypeAlias = Callable[[Record], cdi.Spec | None]


class ClaimFiles:
    """The files on this host of one driver's claims."""

    def __init__(self, driver: str, cdi_directory: Path, metadata: MetadataFolder | None, describe: Describe) -> None:
        """Prepare; no file is written yet. `describe` returns the CDI spec of a claim's devices as they are now."""
        self._metadata = metadata
        self._driver = driver
        self._cdi = cdi.CdiDirectory(cdi_directory, _OWNER)
        self._describe = describe

    def check(self, claim: ClaimRef) -> None:
        """Raise OSError, `MetadataError` or `CdiError` for a claim whose files could be neither written nor removed."""
        paths = [self._cdi.file(name) for name in self._names(claim.uid)]
        for path in [*paths, self._metadata.file(claim.uid, "any")] if self._metadata is not None else paths:
            try:
                os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue

    def write(self, record: Record, *, rewrite: bool = False) -> None:
        """Write a claim's files. Raises OSError, `MetadataError`, `CdiError`, and the errors of `claim_spec`.

        Existing metadata stays; with `rewrite` it is replaced by the record's.
        """
        self._write_metadata(record, rewrite)
        for name, spec in self._specs(record).items():
            self._cdi.write(name, spec)
        self.describe(record)

    def describe(self, record: Record) -> None:
        """Update the CDI spec of a claim's devices after one of them has moved, come or gone.

        Raises the errors of `write`.
        """
        name, spec = self._names(record.claim.uid)[0], self._describe(record)
        if spec is None:
            self._cdi.remove(name)
        else:
            self._cdi.write(name, spec)

    def remove(self, uid: str) -> None:
        """Remove a claim's files, if there are any. Raises OSError or `CdiError`."""
        for name in self._names(uid):
            self._cdi.remove(name)
        if self._metadata is not None:
            self._metadata.remove(uid)

    def concerns(self, entry: str) -> bool:
        """Return whether a file of this name in the CDI directory belongs to this driver."""
        return self._cdi.is_own_file(entry)

    def modified(self, changed: Iterable[str]) -> set[str]:
        """Return the uids of the claims whose CDI specs another program has changed, from the `changed` names.

        Names that are too long to contain the uid are ignored.
        """
        kinds = [f"{each}~" for each in self._names("")]
        names = [name for name in map(self._cdi.name_of, changed) if self._cdi.is_modified(name)]
        return {name.removeprefix(kind) for name in names for kind in kinds if name.startswith(kind)}

    def are_modified(self, uid: str) -> bool:
        """Return whether another program has changed or removed a CDI spec of a claim."""
        return any(map(self._cdi.is_modified, self._names(uid)))

    def sync(self, records: Sequence[Record], kept: Collection[str] | None) -> list[str]:
        """Write the files of these claims, and remove those of all claims not in `kept`; None: remove nothing.

        Returns the problems, in words; a problem does not stop the rest.
        """
        problems: list[str] = []
        for record in records:
            try:
                self.write(record)
            except _WRITE_ERRORS as error:
                problems.append(f"claim {record.claim}: its files cannot be written again: {error}")
        if kept is None:
            return problems
        try:
            self._cdi.remove_others([name for uid in kept for name in self._names(uid)])
            if self._metadata is not None:
                self._metadata.remove_others(kept)
        except (OSError, cdi.CdiError) as error:
            problems.append(f"files of ended claims cannot be removed: {error}")
        return problems

    def _write_metadata(self, record: Record, rewrite: bool) -> None:
        if self._metadata is None:
            return
        for each in record.metadata:
            if rewrite or self._metadata.read(record.claim.uid, each.request) is None:
                self._metadata.write(record.claim.uid, each)

    def _specs(self, record: Record) -> dict[str, cdi.Spec]:
        """Return the specs that do not depend on where devices are now."""
        if self._metadata is None or not record.metadata:
            return {}
        return {self._names(record.claim.uid)[1]: self._metadata.cdi_spec(record.claim, record.metadata)}

    def _names(self, uid: str) -> tuple[str, str]:
        return cdi.file_name(f"{self._driver}/claim", uid), cdi.file_name(f"{self._driver}/metadata", uid)
