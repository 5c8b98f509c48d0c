"""`metrics`: the metrics for Prometheus, also if no address is served."""

from msgspec import Struct

from nodeplug.control.running import RunningDaemon
from telemetry.exposition import render


class Question(Struct, frozen=True, tag_field="question", tag="metrics"):
    """What are the metrics?"""


class Answer(Struct, frozen=True):
    """The metrics as text."""

    text: str


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `metrics`."""
    del question
    return Answer(render(running.metrics()))
