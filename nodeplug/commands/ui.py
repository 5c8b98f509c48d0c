"""`nodeplug ui`: a page about the running daemon, on this machine alone.

Exit codes: 0 ended with Ctrl-C, 1 the port cannot be used, 2 the command line is wrong, 4 no daemon answers.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from nodeplug.commands.examples import examples
from nodeplug.commands.failure import Failure
from nodeplug.commands.running_daemon import ask, state_option
from nodeplug.control import client, events
from nodeplug.control.client import LONG_TIMEOUT
from nodeplug.page.feed import Feed
from nodeplug.page.site import Site

_MAX_BYTES = 8 * 1024  # of a request
_SECONDS_TO_ASK = 5.0


@click.command(epilog=examples("nodeplug ui", "nodeplug ui --port 9401 --open", "ssh -L 9401:127.0.0.1:9401 NODE"))
@state_option
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port at 127.0.0.1.  [default: a free one]")
@click.option("--open", "is_opened", is_flag=True, help="Also open the page in this machine's browser.")
def ui(state: Path, port: int, is_opened: bool) -> None:
    """Serve a live page of the running daemon, with a picture of the node, leases and events, until Ctrl-C.

    Only users of this machine who have the printed address can open the page: the address contains a secret.
    """
    ask(state, events.Question(), events.Answer)  # fails early, with the reason, if no daemon answers
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(state, port, is_opened=is_opened))


async def _serve(state: Path, port: int, *, is_opened: bool) -> None:
    async def asked(question: Struct, kind: type[Any]) -> Any:
        return await _in_background(lambda: client.ask(state, question, kind, LONG_TIMEOUT))

    secret = f"/{secrets.token_urlsafe(16)}"
    site = Site(Feed(asked), secret)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS_TO_ASK):
                head = await reader.readuntil(b"\r\n\r\n")
            await site.respond(head, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone
        finally:
            writer.transport.abort()

    try:
        server = await asyncio.start_server(answer, "127.0.0.1", port, limit=_MAX_BYTES)
    except OSError as error:
        raise Failure(f"127.0.0.1:{port}: {error.strerror or error}; leave out --port to use a free one") from None
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{secret}/"
    click.echo(f"{address}\nCtrl-C ends it.")
    if is_opened:
        click.launch(address)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
        await site.close()


async def _in_background(call: Callable[[], Any]) -> Any:
    """Return the result of a blocking call; the end of the program does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(result)

    def work() -> None:
        result, failed = None, None
        try:
            result = call()
        except BaseException as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the program has ended meanwhile
            loop.call_soon_threadsafe(done, result, failed)

    threading.Thread(target=work, daemon=True).start()
    return await future
