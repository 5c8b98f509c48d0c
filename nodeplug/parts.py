"""The long-lived parts of the daemon run in one group: one that dies ends them all, with its name in the log."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from checkpoint import Ledger

log = logging.getLogger("nodeplug")


class PartFailed(Exception):
    """A part of the daemon has ended although nobody asked it to; says which one, and why."""


async def run_together(parts: dict[str, Coroutine[Any, Any, None]], may_end: Collection[str]) -> None:
    """Run all parts until cancelled. Raises what ended one, as it is, with a note that names the part."""

    async def run(name: str, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except Exception as error:
            error.add_note(f"part {name}")
            raise
        if name not in may_end:
            raise PartFailed(f"{name} has ended although nobody asked it to")

    try:
        async with asyncio.TaskGroup() as group:
            for name, part in parts.items():
                group.create_task(run(name, part), name=name)
    except BaseExceptionGroup as several:
        raise _first(several) from None


async def once_owned(ledger: Ledger, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a part as soon as the state is ours."""
    await ledger.owned()
    await run()


def _first(error: BaseException) -> BaseException:
    """Return the first of errors in groups, with its own cause; the others are what ended with it."""
    while isinstance(error, BaseExceptionGroup):
        for other in error.exceptions[1:]:
            log.error("ended with it: %r", other)
        error = error.exceptions[0]
    return error
