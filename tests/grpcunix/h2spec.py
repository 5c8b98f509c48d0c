"""h2spec with our server: python -m tests.grpcunix.h2spec PROGRAM [its options]; docs/transport.md has the result.

h2spec only supports TCP, so this module serves the server's endpoints on a port of the loopback interface.
"""

import asyncio
import sys
from collections.abc import Sequence

from grpcunix.builtin_server import BACKLOG, BuiltinServer, ServerEndpoint
from grpcunix.endpoint import FairScheduler


async def _run(program: str, options: Sequence[str]) -> int:
    loop = asyncio.get_running_loop()
    server = BuiltinServer([], keepalive=None)
    turns = FairScheduler(loop)
    listening = await loop.create_server(lambda: ServerEndpoint(server, turns, loop), "127.0.0.1", 0, backlog=BACKLOG)
    port = listening.sockets[0].getsockname()[1]
    h2spec = await asyncio.create_subprocess_exec(program, "--strict", "--port", str(port), *options)
    code = await h2spec.wait()
    listening.close()
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(_run(sys.argv[1], sys.argv[2:])))
