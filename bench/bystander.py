"""Another client of a daemon under attack: `python -m bench.bystander SOCKET UNIT`, a process of its own.

It says `ready` once what a first call loads is loaded, allocates one unit again and again until its input ends, and
prints how many milliseconds each answer took: on a connection that lasts, and every tenth on a new one.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from grpcunix import Client
from kubelet.rpc import connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

WARM = 50
PAUSE = 0.005  # seconds between calls
PATIENCE = 30.0  # seconds for an answer
_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]


async def _call(client: Client, unit: str) -> None:
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[unit])])
    await client.call("Allocate", request, timeout=PATIENCE)


async def _run(socket: Path, unit: str) -> None:
    found: dict[str, list[float]] = {"lasting": [], "new": []}
    async with connect(socket) as channel:
        lasting = Client(channel, _PLUGIN)
        for _ in range(WARM):
            await _call(lasting, unit)
        print("ready", flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        number = 0
        while not ended.done():
            number += 1
            began = time.perf_counter()
            if number % 10:
                await _call(lasting, unit)
                found["lasting"].append((time.perf_counter() - began) * 1000)
            else:
                async with connect(socket) as dialled:
                    await _call(Client(dialled, _PLUGIN), unit)
                    found["new"].append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PAUSE)
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), sys.argv[2]))
