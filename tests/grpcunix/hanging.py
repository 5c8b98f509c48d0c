"""A client process that opens ListAndWatch and then hangs, as a stopped kubelet does."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path

from grpcunix import Client, connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


async def start_hanging_client(socket: Path) -> Process:
    """Start such a client at `socket`; the caller kills it."""
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.grpcunix.hanging", str(socket))


async def _listen_and_stop(socket: Path) -> None:
    async with connect(socket) as channel:
        service = api.DESCRIPTOR.services_by_name["DevicePlugin"]
        async for _ in Client(channel, service).stream("ListAndWatch", api.Empty()):
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    asyncio.run(_listen_and_stop(Path(sys.argv[1])))
