"""`preview`: what a configuration would change if it were in the daemon's file. Nothing is changed."""

from functools import partial

from msgspec import Struct

from hostdevices import Host, HostDevicesError, Inventory, scan
from hostdevices.readers import READERS, paths_reader
from hostdevices.threads import in_thread
from nodeplug.config import Config, ConfigError, from_environment, loads, node_name
from nodeplug.control.changes import Changes, changes
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon

Answer = Changes


class Question(Struct, frozen=True, tag_field="question", tag="preview"):
    """What would `content` change? Findings begin with `source`."""

    content: str
    source: str = "configuration"


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `preview`. Raises `Refusal` with the findings of an invalid configuration."""
    try:
        content, environment = question.content.encode(), from_environment()
        labels = running.file.labels if running.file is not None else None
        now = await in_thread(partial(loads, content, question.source, node_name(), environment, labels))
    except ConfigError as error:
        raise Refusal("the configuration is wrong", tuple(error.lines())) from None
    return await changes_in(running, running.offering.config, now)


async def changes_in(running: RunningDaemon, before: Config, now: Config) -> Changes:
    """Return what `now` changes here. Raises `Refusal` if the host cannot be read."""
    inventory, leases = running.offering.inventory, running.ledger.leases()
    needs_restart = before != now and running.needs_restart(now)
    known = None if inventory is None or set(now.path_globs) - set(running.offering.config.path_globs) else inventory

    def work() -> Changes:
        return changes(before, now, known or _scan(running.host, now), leases, needs_restart)

    try:
        return await in_thread(work)
    except HostDevicesError as error:
        raise Refusal(str(error)) from None


def _scan(host: Host, config: Config) -> Inventory:
    """Return the devices for a configuration that has other path globs than the present one."""
    return scan(host, (*READERS, paths_reader(config.path_globs)))
