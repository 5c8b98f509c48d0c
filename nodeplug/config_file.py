"""The configuration's file while the daemon runs: read again when it was changed, and on SIGHUP.

    changed, SIGHUP -> quiet? -> valid? -> other than now? -> the daemon

Rules:
1. What is wrong is said, finding by finding, and the configuration of before stays: a file that is gone or half written
   takes no device away.
2. A change is read once the file has been left alone for `SETTLE` seconds. A ConfigMap is a folder whose link `..data`
   is moved, an editor writes in place or moves a new file there: each is noticed. What is behind a link of somebody's
   own is not; SIGHUP says so.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from folderwatch import FolderWatcher
from nodeplug.config import Config, ConfigError, load
from resources.resource import Resource

SETTLE = 0.5
_CONFIG_MAP = "..data"
log = logging.getLogger("nodeplug")


class ConfigStatus(Struct, frozen=True):
    """How the last reading of the file ended, and when one ended well, in seconds since the epoch."""

    is_good: bool
    loaded_at: float


class ConfigFile:
    """The file that the daemon was started with, and the last good configuration in it."""

    def __init__(self, path: Path, config: Config) -> None:
        """Begin with `config`, which was read from `path`."""
        self.path = path
        self.config = config
        self.status = ConfigStatus(True, time.time())
        self._asked = asyncio.Event()

    def request(self) -> None:
        """Have the file read again (SIGHUP)."""
        self._asked.set()

    async def changes(self, watcher: FolderWatcher) -> AsyncIterator[Config]:
        """Yield each new configuration that is sound and another one than before."""
        names = (self.path.name, _CONFIG_MAP)
        watch = watcher.watch(self.path.absolute().parent, self.request, names.__contains__, contents=True)
        try:
            while True:
                await self._asked.wait()
                while self._asked.is_set():
                    self._asked.clear()
                    await asyncio.sleep(SETTLE)
                before = self.config
                if await self._read() and self.config != before:
                    log.info("configuration changed: %s", "; ".join(differences(before, self.config)))
                    yield self.config
        finally:
            watch.close()

    def refuse(self, config: Config, why: str) -> None:
        """Go back to `config`: what was read since is sound, and cannot be had here."""
        self._stays(why)
        self.config = config

    async def _read(self) -> bool:
        try:
            self.config = await asyncio.to_thread(load, self.path)
        except ConfigError as error:
            for line in error.lines():
                self._stays(line)
            return False
        self.status = ConfigStatus(True, time.time())
        return True

    def _stays(self, why: str) -> None:
        log.error("the configuration stays as it was: %s", why)
        self.status = structs.replace(self.status, is_good=False)


def differences(before: Config, now: Config) -> Iterator[str]:
    """Yield in words what another configuration changes: settings, resources, and the order of those in both."""
    if names := _fields(before.settings, now.settings):
        yield f"settings ({', '.join(names)})"
    old, new = ({x.name: x for x in config.resources} for config in (before, now))
    yield from (f"{name} is new" for name in new if name not in old)
    yield from (f"{name} is not offered any more" for name in old if name not in new)
    for name in (x for x in new if x in old):
        if names := _fields(old[name], new[name]):
            yield f"{name} ({', '.join(names)})"
    if _order(before.resources, new) != _order(now.resources, old):
        yield "the order of resources"


def _fields(one: Struct, other: Struct) -> list[str]:
    """Return the fields in which two values differ, as they are written in the file."""
    fields = structs.fields(one)
    return [x.encode_name for x in fields if getattr(one, x.name) != getattr(other, x.name)]


def _order(resources: Sequence[Resource], common: dict[str, Resource]) -> list[str]:
    return [x.name for x in resources if x.name in common]
