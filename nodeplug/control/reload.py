"""`reload`: make the daemon read its configuration's file again, and return what changed."""

from msgspec import Struct, structs

from nodeplug.control.changes import Changes
from nodeplug.control.preview import changes_in
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon


class Question(Struct, frozen=True, tag_field="question", tag="reload"):
    """Read the file again."""


class Answer(Struct, frozen=True, rename="camel"):
    """The file and its changes; `loaded_at` is when the configuration in force was read, in seconds since the epoch."""

    file: str
    loaded_at: float
    changes: Changes


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `reload`, once the daemon offers what the file describes.

    Raises `Refusal` if nothing has changed for that reason.
    """
    del question
    if running.file is None:
        raise Refusal("this daemon runs without a configuration file")
    before = running.file.status
    reading = await running.file.reload()
    if reading.problems:
        raise Refusal("the configuration stays as it was", reading.problems)
    path = str(running.file.path)
    if reading.before is None:
        return Answer(path, before.loaded_at, Changes())
    if not reading.needs_restart:
        await running.offering.configured()
    found = await changes_in(running, reading.before, running.file.config)
    return Answer(path, running.file.status.loaded_at, structs.replace(found, needs_restart=reading.needs_restart))
