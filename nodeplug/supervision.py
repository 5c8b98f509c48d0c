"""The long-lived parts of the daemon in one task group: if one fails, all end, and the log names it."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

log = logging.getLogger("nodeplug")


class PartFailed(Exception):
    """A part of the daemon has ended without being cancelled; the message names it and the reason."""


async def run_together(parts: Mapping[str, Coroutine[Any, Any, None]], may_end: Collection[str]) -> None:
    """Run all parts until cancelled. Raises the exception that ended one, unchanged, with a note that names the part.

    Raises `PartFailed` if one returns that is not in `may_end`.
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
    """Return the first error in nested groups, with its own cause; the others ended because of it."""
    while isinstance(error, BaseExceptionGroup):
        for other in error.exceptions[1:]:
            log.error("also failed: %r", other)
        error = error.exceptions[0]
    return error
