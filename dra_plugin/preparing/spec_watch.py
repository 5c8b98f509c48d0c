"""Detects CDI specs of claims that are removed or changed while the daemon runs: their containers could not start.

The holder of a claim's turn might be about to write or remove the specs, or only wait for an API server that does not
answer: such claims are checked again after a pause.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from dra_plugin.preparing.prepare import Preparer
from folderwatch import FolderWatch, FolderWatcher

_RECHECK_DELAY: Final = 1.0  # seconds until busy claims are checked again

log = logging.getLogger("nodeplug.dra")


class SpecWatch:
    """Triggers a repair when another program changes CDI specs of claims."""

    def __init__(self, preparer: Preparer, folder: Path, watcher: FolderWatcher, repair: Callable[[], None]) -> None:
        """Prepare; `repair` is called on the loop."""
        self._preparer = preparer
        self._folder = folder
        self._watcher = watcher
        self._repair = repair
        self._watch: FolderWatch | None = None
        self._is_logged = False  # that specs are being changed; it can recur
        self._busy: set[str] = set()  # uids of claims with changed specs whose lock was held
        self._recheck_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Watch the folder, and check all claims first: the repair at the start might be some time ago."""

        def changed() -> None:
            self._check(None if watch.names is None else self._preparer.claims_of_files(watch.names))

        watch = self._watch = self._watcher.watch(self._folder, changed, self._preparer.concerns, contents=True)
        try:
            self._check(None)
            await asyncio.Event().wait()
        finally:
            watch.close()
            self._watch = None
            if self._recheck_timer is not None:
                self._recheck_timer.cancel()

    def _check(self, uids: Collection[str] | None) -> None:
        is_modified, busy = self._preparer.modified_files(uids)
        is_logged, self._is_logged = self._is_logged, is_modified
        if is_modified and self._watch is not None:
            if not is_logged:
                text = "CDI specs of claims in %s were removed or changed by another program: they are written again"
                log.warning(text, self._folder)
            self._watch.pause()
            self._repair()
        self._busy |= busy
        if self._busy and self._recheck_timer is None:
            self._recheck_timer = asyncio.get_running_loop().call_later(_RECHECK_DELAY, self._check_again)

    def _check_again(self) -> None:
        self._recheck_timer, busy, self._busy = None, self._busy, set()
        self._check(busy)
