"""The files of a prepared claim: its CDI specs and its metadata. Blocking: call from a thread.

Rule: what a container mounts is there before the spec that mounts it, and goes after it.
"""

from collections.abc import Sequence
from pathlib import Path

import cdi
from dra_plugin.driver import ClaimRef
from dra_plugin.metadata import DeviceMetadata, MetadataError
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

    def write(self, record: Record, *, anew: bool = False) -> None:
        """Put a claim's files in place. Raises OSError, `MetadataError` or `CdiError`.

        Metadata that is there stays, for it may have been updated since; with `anew` it is what the record says.
        """
        self._write_metadata(record, anew)
        for name, spec in self._specs(record).items():
            self._cdi.write(name, spec)

    def remove(self, claim: ClaimRef) -> None:
        """Remove a claim's files; none is fine. Raises OSError, `MetadataError` or `CdiError`.

        Of a claim without a name only the CDI specs are found.
        """
        for name in self._names(claim.uid):
            self._cdi.remove(name)
        if self.metadata is not None and claim.name:
            self.metadata.remove(claim)

    def sync(self, records: Sequence[Record], only_these: bool = True) -> list[str]:
        """Put the files of these claims in place, and remove those of others unless told not to.

        Returns what went wrong, in words; the rest is done all the same.
        """
        problems: list[str] = []
        for record in records:
            try:
                self.write(record)
            except (OSError, MetadataError, cdi.CdiError) as error:
                problems.append(f"claim {record.claim}: its files cannot be put back: {error}")
        if not only_these:
            return problems
        try:
            self._cdi.sync({name: spec for record in records for name, spec in self._specs(record).items()})
            if self.metadata is not None:
                self.metadata.keep([record.claim for record in records])
        except (OSError, MetadataError, cdi.CdiError) as error:
            problems.append(f"files of claims that are over cannot be removed: {error}")
        return problems

    def _write_metadata(self, record: Record, anew: bool) -> None:
        if self.metadata is None:
            return
        for each in record.metadata:
            if anew or self.metadata.read(record.claim, each.request) is None:
                self.metadata.write(record.claim, each.request, from_dict(DeviceMetadata, dict(each.content)))

    def _specs(self, record: Record) -> dict[str, cdi.Spec]:
        of_claim, of_metadata = self._names(record.claim.uid)
        specs = {of_claim: record.spec} if record.spec is not None else {}
        if self.metadata is not None and record.metadata:
            specs[of_metadata] = self.metadata.cdi_spec(record.claim, record.metadata)
        return specs

    def _names(self, uid: str) -> tuple[str, str]:
        return cdi.file_name(f"{self._driver}/claim", uid), cdi.file_name(f"{self._driver}/metadata", uid)
