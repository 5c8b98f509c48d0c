"""Another client of a daemon under attack: `python -m bench.bystander SOCKET UNIT`, in a separate process.

It prints `ready` after some calls to warm up. Then it allocates one unit repeatedly until its stdin ends, every tenth
time on a new connection. At the end it prints the time of each answer in milliseconds, and how often a connection was
cut off. In that case it repeats the call, and the time until the answer counts.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from grpcunix import Client, RpcError, Status
from kubelet.rpc import connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

WARM = 50
PAUSE = 0.005  # seconds between calls
TIMEOUT = 30.0  # seconds for an answer
_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]


async def _allocate(client: Client, unit: str) -> bool:
    """Allocate a unit; return False if the connection was cut off."""
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[unit])])
    try:
        await client.call("Allocate", request, timeout=TIMEOUT)
    except RpcError as error:
        if error.code is Status.UNAVAILABLE:
            return False
        raise
    return True


async def _allocate_on_a_new_connection(socket: Path, unit: str) -> bool:
    """Allocate a unit on a new connection."""
    async with connect(socket) as channel:
        return await _allocate(Client(channel, _PLUGIN), unit)


async def _run(socket: Path, unit: str) -> None:
    found: dict[str, list[float]] = {"lasting": [], "new": []}
    cut_off = 0
    async with connect(socket) as channel:
        lasting = Client(channel, _PLUGIN)
        for _ in range(WARM):
            await _allocate(lasting, unit)
        print("ready", flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        number = 0
        while not ended.done():
            number += 1
            kind = "lasting" if number % 10 else "new"
            began = time.perf_counter()
            while not await (
                _allocate(lasting, unit) if kind == "lasting" else _allocate_on_a_new_connection(socket, unit)
            ):
                cut_off += 1
                await asyncio.sleep(PAUSE)
            found[kind].append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PAUSE)
    print(json.dumps({**found, "cut_off": cut_off}))


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), sys.argv[2]))
