"""A device plugin with many devices, in its own process: python -m tests.grpcunix.plugin FOLDER TRANSPORT DEVICES."""

import asyncio
import sys
from pathlib import Path

from bench.bare_plugin import SERVICES, Plugin
from grpcunix import handler
from grpcunix.socket import UnixServer


async def _serve(folder: Path, transport: str, devices: int) -> None:
    service = handler(SERVICES["DevicePlugin"], Plugin(0, devices))
    server = UnixServer(folder / "res0.sock", [service], transport=transport)  # type: ignore[arg-type]
    await server.start()
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
