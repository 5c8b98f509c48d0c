"""The files of a prepared claim: its CDI specs and its metadata. Blocking: call from a thread.

Rule: what a container mounts is there before the spec that mounts it, and goes after it.
"""

from collections.abc import Sequence
from pathlib import Path

import cdi
from dra_plugin.driver import ClaimRef
from dra_plugin.metadata import DeviceMetadata
from dra_plugin.metadata_files import MetadataFolder
from dra_plugin.record import Record
from resourceapi.objects import from_dict

_OWNER = "dra"  # of the files in the CDI directory


class ClaimFiles:
    """What the claims of one driver have on this host."""

    def __init__(self, driver: str, cdi_directory: Path, metadata: MetadataFolder | None) -> None:
        """Prepare; nothing is touched yet."""
        self.metadata = metadata
        self._driver = driver
        self._cdi = cdi.CdiDirectory(cdi_directory, _OWNER)

    def write(self, record: Record) -> None:
        """Put a claim's files in place; those that are there stay. Raises OSError, `MetadataError` or `CdiError`.

        Metadata that was updated since is not put back to what it was.
        """
        if self.metadata is not None:
            for each in record.metadata:
                if self.metadata.read(record.claim, each.request) is None:
                    self.metadata.write(record.claim, each.request, from_dict(DeviceMetadata, dict(each.content)))
        for name, spec in self._specs(record).items():
            self._cdi.write(name, spec)

    def remove(self, claim: ClaimRef) -> None:
        """Remove a claim's files; none is fine. Raises OSError, `MetadataError` or `CdiError`."""
        for name in self._names(claim.uid):
            self._cdi.remove(name)
        if self.metadata is not None:
            self.metadata.remove(claim)

    def sync(self, records: Sequence[Record]) -> None:
        """Make the files those of these claims and of no others. Raises as `write` does."""
        for record in records:
            self.write(record)
        self._cdi.sync({name: spec for record in records for name, spec in self._specs(record).items()})
        if self.metadata is not None:
            self.metadata.keep([record.claim for record in records])

    def _specs(self, record: Record) -> dict[str, cdi.Spec]:
        of_claim, of_metadata = self._names(record.claim.uid)
        specs = {of_claim: record.spec} if record.spec is not None else {}
        if self.metadata is not None and record.metadata:
            specs[of_metadata] = self.metadata.cdi_spec(record.claim, record.metadata)
        return specs

    def _names(self, uid: str) -> tuple[str, str]:
        return cdi.file_name(f"{self._driver}/claim", uid), cdi.file_name(f"{self._driver}/metadata", uid)
