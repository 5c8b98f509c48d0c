"""One connection of the control socket: its user, the request, the answer. Loaded with the first connection."""

import asyncio
import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

import msgspec

from grpcunix.peer import peer_of
from hostdevices.errors import HostExhausted
from nodeplug.control.protocol import MAX_BYTES, QUESTIONS, Head, Refusal, Reply
from nodeplug.control.running import RunningDaemon

SECONDS_TO_ASK = 5.0
SECONDS_TO_ANSWER = 60.0
SECONDS_TO_READ = 10.0
_NOT_DECODED = (msgspec.MsgspecError, UnicodeError, RecursionError)
log = logging.getLogger("nodeplug")


async def serve_connection(
    running: RunningDaemon, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_request: Callable[[], object]
) -> None:
    """Answer the question on a connection; `on_request` is called when the question has arrived.

    Raises OSError and TimeoutError if the client does not read.
    """
    writer.write(msgspec.json.encode(await _reply(running, reader, writer, on_request)) + b"\n")
    writer.close()
    async with asyncio.timeout(SECONDS_TO_READ):
        await writer.wait_closed()


async def _reply(
    running: RunningDaemon, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_request: Callable[[], object]
) -> Reply:
    try:
        async with asyncio.timeout(SECONDS_TO_ASK):
            line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return Reply(error="this is not a request: a request is a line of JSON")
    except asyncio.LimitOverrunError:
        return Reply(error=f"a request has at most {MAX_BYTES} bytes")
    except TimeoutError:
        return Reply(error=f"no request came within {SECONDS_TO_ASK:g} s")
    if peer_of(writer.get_extra_info("socket")).uid not in (0, os.geteuid()):
        return Reply(error="only root may ask")
    on_request()
    try:
        async with asyncio.timeout(SECONDS_TO_ANSWER):
            return Reply(await _answer(running, line))
    except Refusal as refusal:
        return Reply(error=str(refusal), findings=refusal.findings)
    except HostExhausted as error:
        return Reply(error=f"{error}; try again")
    except TimeoutError:
        return Reply(error=f"there was no answer within {SECONDS_TO_ANSWER:g} s; see the daemon's log")
    except Exception as error:  # a defect of ours must not end the daemon
        log.exception("a request could not be answered")
        return Reply(error=f"nodeplug failed: {error!r}; see the daemon's log")


async def _answer(running: RunningDaemon, line: bytes) -> Any:
    """Return the answer to a question. Raises `Refusal`."""
    try:
        name = msgspec.json.decode(line, type=Head).question
    except _NOT_DECODED as error:
        raise Refusal(f"this is not a request: {error}") from None
    if name not in QUESTIONS:
        raise Refusal(f"this daemon has no request {name!r}; its version may be another one")
    module = importlib.import_module(f"nodeplug.control.{name}")
    try:
        question = msgspec.json.decode(line, type=module.Question)
    except _NOT_DECODED as error:
        raise Refusal(f"the request {name} is not valid: {error}") from None
    return await module.answer(running, question)
