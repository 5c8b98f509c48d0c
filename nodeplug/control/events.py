"""`events`: the latest events, and new ones for clients that wait for them.

Rules:
1. A client that follows sends a request for each batch, with the number of its last event. The daemon stores nothing
   for it, and a client that does not read uses only a connection, for some seconds.
2. At most `MAX_WAITING` clients can wait at a time: the other connections are for other requests.
"""

import asyncio
import contextlib

from msgspec import Struct

from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon
from telemetry import Event

MAX_SECONDS = 10.0
"""The longest time that a question waits; a client that has gone is noticed only then."""
MAX_WAITING = 4


class Question(Struct, frozen=True, tag_field="question", tag="events"):
    """What happened after the event of this number in the log with this start time? Everything, if that is another log.

    If nothing did, the answer waits for `wait` seconds, at most `MAX_SECONDS`.
    """

    after: int = 0
    log: float = 0.0
    wait: float = 0.0


class Answer(Struct, frozen=True, rename="camel"):
    """Events, the oldest first, and the log that numbers them.

    `is_incomplete`: some after `after` are no longer kept.
    """

    log: float
    latest: int
    is_incomplete: bool
    events: tuple[Event, ...]


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `events`. Raises `Refusal` if too many questions wait already."""
    log = running.telemetry.events
    after = question.after if question.log == log.began else 0
    if question.wait > 0 and after >= log.latest:
        if log.waiting >= MAX_WAITING:
            raise Refusal(f"{MAX_WAITING} others follow the events already; end one of them, or leave out --follow")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(question.wait, MAX_SECONDS)):
                await log.wait(after)
    return Answer(log.began, log.latest, after > 0 and log.has_lost_events_after(after), log.since(after))
