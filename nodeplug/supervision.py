"""The long-lived parts of the daemon in one task group: if one fails, all end, and the log names it."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

log = logging.getLogger("nodeplug")


class PartFailed(Exception):
    """A part of the daemon has ended although nobody asked it to; says which one, and why."""


async def run_together(parts: Mapping[str, Coroutine[Any, Any, None]], may_end: Collection[str]) -> None:
    """Run all parts until cancelled. Raises what ended one, as it is, with a note that names the part.

    Raises `PartFailed` where one returns that is none of `may_end`.
    """

    async def run(name: str, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except Exception as error:
            error.add_note(f"part {name}")
            raise
        if name not in may_end:
            raise PartFailed(f"{name} ended unexpectedly")

    try:
        async with asyncio.TaskGroup() as group:
            for name, part in parts.items():
                group.create_task(run(name, part), name=name)
    except BaseExceptionGroup as several:
        first = _first(several)
        raise first from first.__cause__


def _first(error: BaseException) -> BaseException:
    """Return the first of errors in groups, with its own cause; the others are what ended with it."""
    while isinstance(error, BaseExceptionGroup):
        for other in error.exceptions[1:]:
            log.error("also failed: %r", other)
        error = error.exceptions[0]
    return error
