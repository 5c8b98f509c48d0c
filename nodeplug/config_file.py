"""The configuration's file while the daemon runs: it is read again after changes and on SIGHUP.

    changed, SIGHUP, `nodeplug reload` -> unchanged for a while? -> valid? -> different? -> the daemon

Rules:
1. Every mistake is reported, and the previous configuration stays in effect: a missing or incomplete file removes no
   device.
2. A change is read when the file has been unchanged for `DEBOUNCE` seconds, or after `MAX_DEBOUNCE` if a program keeps
   writing it. A ConfigMap is a folder whose link `..data` is replaced; an editor writes in place or moves a new file
   there: each is noticed. Changes behind another symbolic link are not; use SIGHUP.
3. A file that exists and cannot be read is read again after `RETRY` seconds, because no event reports that a disk has
   recovered.
4. The file is not watched before the daemon has started and while it restarts. A change in this time, which the file's
   `stamp` shows, is read when the watch begins.
"""

import asyncio
import gc
import logging
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, structs

from folderwatch import FolderWatcher
from nodeplug.config import Config, ConfigError, ConfigUnreadable, Finding, from_environment, loads, node_name, read
from resources.resource import Resource
from telemetry import Telemetry

DEBOUNCE = 0.5
MAX_DEBOUNCE = 5.0
RETRY = 5.0
_CONFIG_MAP = "..data"
_MAX_PROBLEMS = 20  # the most problems that are kept of an invalid file
log = logging.getLogger("nodeplug")

Stamp: TypeAlias = tuple[int, ...]
"""Distinguishes two contents of a file without reading it."""


class ConfigStatus(Struct, frozen=True):
    """Whether the last reading of the file succeeded, and when a reading last succeeded, in seconds since the epoch.

    `problems` are the reasons why the file is invalid; only the first ones if there are many.
    """

    is_good: bool
    loaded_at: float
    problems: tuple[str, ...] = ()


class Reading(Struct, frozen=True):
    """The outcome of one reading of the file: its problems, or the change that it makes.

    Neither: nothing has changed.
    """

    problems: tuple[str, ...] = ()
    before: Config | None = None  # if the reading changes something
    needs_restart: bool = False  # whether the daemon restarts because of the change


class ConfigFile:
    """The file that the daemon was started with, and the last valid configuration in it."""

    def __init__(
        self,
        path: Path,
        config: Config,
        content: bytes = b"",
        telemetry: Telemetry | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        stamped: Stamp | None = None,
        retry_seconds: float = RETRY,
    ) -> None:
        """Begin with `config`, which was read from `path` as `content`. `retry_seconds` is in seconds.

        `labels` are those of the node; None if they are not known and if no resource needs them. `stamped` is the
        file's `stamp` from before that reading; without it, the present file is taken to be the one that was read.
        """
        self._telemetry = telemetry or Telemetry()
        self.path = path
        self.config = config
        self.content = content
        self.labels = labels
        self.status = ConfigStatus(True, time.time())
        self._stamp = stamp(path) if stamped is None else stamped
        self.is_unproven = False  # whether `config` is new, so that the daemon might fail to get what it needs
        self._before = config, content  # the state to which `refuse` returns
        self._requested = asyncio.Event()
        self._waiting: list[asyncio.Future[Reading]] = []
        self._retry_seconds = retry_seconds
        self._retry: asyncio.TimerHandle | None = None

    def is_changed(self) -> bool:
        """Return whether the file differs from its state at the last reading, whatever the outcome of that was."""
        return stamp(self.path) != self._stamp

    def request(self) -> None:
        """Request that the file is read again (SIGHUP)."""
        self._requested.set()

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Request that the file is read again for a node with other labels."""
        self.labels = labels
        self.request()

    async def reload(self) -> Reading:
        """Have the file read again; return the outcome once the daemon has applied it. Requires that `changes` runs."""
        reading: asyncio.Future[Reading] = asyncio.get_running_loop().create_future()
        self._waiting.append(reading)
        self.request()
        return await reading

    async def changes(
        self, watcher: FolderWatcher, needs_restart: Callable[[Config], bool] = lambda _: False
    ) -> AsyncGenerator[Config, None]:
        """Yield each new configuration that is valid and differs from the one before.

        `needs_restart` returns whether the daemon restarts for a configuration; the callers of `reload` learn that.
        """
        names = (self.path.name, _CONFIG_MAP)

        def on_change() -> None:
            if watch.names is not None or self.is_changed():  # without names, this is a periodic check without a result
                self.request()

        watch = watcher.watch(self.path.absolute().parent, on_change, names.__contains__, contents=True)
        try:
            if self.is_changed():
                self.request()
            while True:
                await self._requested.wait()
                await self._wait_until_quiet()
                waiting, self._waiting = self._waiting, []
                before, content = self.config, self.content
                with self._telemetry.tracer.span("reload configuration") as span:
                    problems = await self._read()
                    if problems:
                        span.fail(problems[0])
                    else:
                        span.set("nodeplug.changed", self.config != before)
                if problems or self.config == before:
                    _answer(waiting, Reading(problems))
                    continue
                changed = "; ".join(differences(before, self.config))
                log.info("configuration changed: %s", changed)
                self._telemetry.reloads["good"] += 1
                self._telemetry.events.record("reloaded", f"the configuration changed: {changed}")
                is_new = needs_restart(self.config)
                if is_new and not self.is_unproven:
                    self._before = before, content
                _answer(waiting, Reading(before=before, needs_restart=is_new))
                yield self.config
        finally:
            if self._retry is not None:
                self._retry.cancel()
            watch.close()

    def refuse(self, why: str) -> None:
        """Return to the last configuration that the daemon could apply: it cannot apply the one that was read since."""
        self._record_refusal([why])
        self.is_unproven = False
        self.config, self.content = self._before

    async def _wait_until_quiet(self) -> None:
        """Return once no request has arrived for `DEBOUNCE` seconds, at the latest after `MAX_DEBOUNCE`."""
        loop = asyncio.get_running_loop()
        at_the_latest = loop.time() + MAX_DEBOUNCE
        while self._requested.is_set() and loop.time() < at_the_latest:
            self._requested.clear()
            await asyncio.sleep(DEBOUNCE)

    async def _read(self) -> tuple[str, ...]:
        """Read the file; return its problems."""
        if self._retry is not None:
            self._retry.cancel()
        self._stamp = stamp(self.path)
        try:
            content, config, labels = await self._read_in_thread()
        except ConfigError as error:
            problems = tuple(error.lines())
            if problems != self.status.problems or not isinstance(error, ConfigUnreadable):  # else reported already
                self._record_refusal(problems)
            if isinstance(error, ConfigUnreadable):
                self._retry = asyncio.get_running_loop().call_later(self._retry_seconds, self.request)
            return problems
        if self.labels is None:  # else `relabel` has set them, perhaps during this reading; the next reading uses them
            self.labels = labels
        self.config, self.content = config, content
        self.status = ConfigStatus(True, time.time())
        return ()

    async def _read_in_thread(self) -> tuple[bytes, Config, Mapping[str, str] | None]:
        try:
            return await asyncio.to_thread(_read_again, self.path, self.labels)
        except RuntimeError as error:  # the process, its cgroup or the node can have no other thread now
            raise ConfigUnreadable(str(self.path), [Finding(1, 1, f"this file cannot be read: {error}")]) from error

    def _record_refusal(self, problems: Sequence[str]) -> None:
        status = structs.replace(self.status, is_good=False, problems=tuple(problems[:_MAX_PROBLEMS]))
        self.status = status
        for why in problems:
            log.error("the configuration stays as it was: %s", why, extra={"is_current": lambda: self.status == status})
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        self._telemetry.reloads["refused"] += 1
        message = f"the configuration stays as it was: {problems[0]}{more}"
        self._telemetry.events.record("reload-refused", message)


def stamp(path: Path) -> Stamp:
    """Return the stamp of a file; empty if there is none, and for a pipe, which cannot be read twice."""
    try:
        status = path.stat()
    except OSError:
        return ()
    if not stat.S_ISREG(status.st_mode):
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_for_node(
    path: Path, labels: Mapping[str, str] | None = None
) -> tuple[bytes, Config, Mapping[str, str] | None]:
    """Return a file's content, its configuration for this node, and the labels used: at first the remembered ones.

    Raises `ConfigError`.
    """
    content = read(path)
    config = loads(content, str(path), node_name(), from_environment(), labels)
    if config.selects_nodes and labels is None:
        from nodeplug.node_labels import remembered  # imported here: it brings the API server's client

        settings = config.settings
        labels = remembered(Path(settings.state_directory), node_name(settings.node_name))
        if labels is not None:
            config = loads(content, str(path), node_name(), from_environment(), labels)
    return content, config, labels


def _read_again(path: Path, labels: Mapping[str, str] | None) -> tuple[bytes, Config, Mapping[str, str] | None]:
    try:
        return read_for_node(path, labels)
    finally:
        gc.collect()  # reading makes reference cycles; uncollected ones between live objects make memory grow


def _answer(waiting: Sequence["asyncio.Future[Reading]"], reading: Reading) -> None:
    for future in waiting:
        if not future.done():  # else the caller has gone
            future.set_result(reading)


def differences(before: Config, now: Config) -> Iterator[str]:
    """Yield what another configuration changes, as text: settings, resources, and the order of those in both."""
    if names := changed_fields(before.settings, now.settings):
        yield f"settings ({', '.join(names)})"
    if before.waiting != now.waiting:
        yield "resources that wait for this node's labels" if now.waiting else "this node's labels are known"
    old, new = ({x.name: x for x in config.resources} for config in (before, now))
    yield from (f"{name} is new" for name in new if name not in old)
    yield from (f"{name} is not offered any more" for name in old if name not in new)
    for name in (x for x in new if x in old):
        if names := changed_fields(old[name], new[name]):
            yield f"{name} ({', '.join(names)})"
    if _order(before.resources, new) != _order(now.resources, old):
        yield "the order of resources"


def changed_fields(before: Struct, now: Struct) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two values differ, by their names in the file, with both values."""
    pairs = {x.encode_name: (getattr(before, x.name), getattr(now, x.name)) for x in structs.fields(now)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _order(resources: Sequence[Resource], common: dict[str, Resource]) -> list[str]:
    return [x.name for x in resources if x.name in common]
