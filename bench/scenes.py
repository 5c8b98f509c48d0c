"""Attacks from the daemon's environment: claims, an API server, kernel events, sysfs, folders and the disk.

A scene is the environment of a daemon and an attack in it for two seconds. The API server is a simple one in the
attacker's process, which sends raw bytes; it answers correctly until the attack begins. The largest claim is that of
`tests/dra_plugin/preparing/test_claim_limits.py`.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from bench.table import LeftOut
from bench.victim import Victim
from controlplane.apiserver import write_kubeconfig
from grpcunix import Client, RpcError, connect
from kubeletapi.dra.v1 import api_pb2 as dra
from tests.grpcunix.attacks import DEVICES
from tests.resourceapi.client.peer import Json, Request, Script, drip, serving

DURATION = 2.0
CLAIMED = 32  # number of devices for claims
_AT_ONCE = 64  # number of claims in parallel
_SYNC = 0.1  # seconds of one sync on a slow disk
_NODE = "worker-1"
_DRIVER = "nodeplug.dev"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_SERVICE = dra.DESCRIPTOR.services_by_name["DRAPlugin"]
UNITS: Json = {"name": "example.com/res0", "select": {"id": "misc-res0-dev*"}}
_Attack: TypeAlias = Callable[[Victim], Awaitable[object]]


class Scene(NamedTuple):
    """A host below `root`, the attack, the resources, and the last resource's unit that the bystander allocates."""

    root: Path
    attack: _Attack
    resources: tuple[Json, ...] = (UNITS,)
    units: int = DEVICES
    unit: str = f"misc-res0-dev{DEVICES - 1}"
    settings: Mapping[str, object] = {}
    environment: Mapping[str, str] = {}


Staged: TypeAlias = Callable[[Path, Path], AbstractAsyncContextManager[Scene]]
"""Prepares a scene with a host of 5,000 devices and an empty folder."""


class _Server:
    """An API server that answers correctly until `begin`, and then all requests and watches with `hostile`."""

    def __init__(self, hostile: Script | None, *parameters: Json) -> None:
        self._hostile = hostile
        self._begun = asyncio.Event()
        self._parameters = parameters  # one for each configuration of a claim
        self._versions = itertools.count(1)

    def begin(self) -> None:
        """Answer with `hostile` from now on."""
        if self._hostile is not None:
            self._begun.set()

    async def __call__(self, request: Request) -> None:
        if request.is_watch and not self._begun.is_set():
            await request.stream()
            await self._begun.wait()
            request.writer.close()  # so that the client watches again
        elif self._hostile and self._begun.is_set():
            await self._hostile(request)
        else:
            await request.answer(self._honest(request), 201 if request.method == "POST" else 200)

    def _honest(self, request: Request) -> Json:
        version = {"resourceVersion": str(next(self._versions))}
        name = request.path.rpartition("/")[2]
        if "/nodes/" in request.path:
            return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": "node"} | version}
        if request.path == _SLICES and request.method == "GET":
            return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": version, "items": []}
        if request.path.startswith(_SLICES):
            stored: Json = json.loads(request.body)
            made = stored["metadata"].get("generateName", "") + version["resourceVersion"]
            return {**stored, "metadata": {"name": made, "uid": made} | stored["metadata"] | version}
        if request.path.endswith("/status"):
            name = request.path.split("/")[-2]
        return _claim(name, *self._parameters) | {"kind": "ResourceClaim"}


def _claim(name: str, *parameters: Json) -> Json:
    """Return a claim with these configurations; `name` is `claim-NUMBER`, and the number selects its device."""
    number = int(name.rpartition("-")[2])
    result = {"request": "r", "driver": _DRIVER, "pool": _NODE, "device": f"misc-res0-dev{number % CLAIMED}"}
    ours = {"apiVersion": "nodeplug.dev/v1", "kind": "DeviceConfig"}
    opaque = [{"driver": _DRIVER, "parameters": ours | each} for each in parameters]
    devices = {"results": [result], "config": [{"source": "FromClaim", "opaque": each} for each in opaque]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}},
        "status": {"allocation": {"devices": devices}},
    }


def _with_claims(*parameters: Json, hostile: Script | None = None) -> Staged:
    """Return a scene that prepares and unprepares many claims at once, with a correct or a hostile API server."""

    @contextlib.asynccontextmanager
    async def staged(host: Path, folder: Path) -> AsyncIterator[Scene]:
        server = _Server(hostile, *parameters)
        claimed = {"id": [f"misc-res0-dev{number}" for number in range(CLAIMED)]}
        async with serving(server) as peer:
            write_kubeconfig(folder / "kubeconfig", peer.url, "")
            yield Scene(
                host,
                lambda victim: _prepare(victim.folder, server),
                ({"name": "example.com/claimed", "select": claimed, "api": "dra"}, UNITS),
                units=DEVICES - CLAIMED,
                settings={"kubeconfig": str(folder / "kubeconfig"), "nodeName": _NODE},
            )

    return staged


async def _prepare(folder: Path, server: _Server) -> None:
    server.begin()
    async with connect(folder / f"plugins/{_DRIVER}/dra.sock") as channel:
        client, end = Client(channel, _SERVICE), time.monotonic() + DURATION

        async def repeat(number: int) -> None:
            claim = dra.Claim(namespace="default", name=f"claim-{number}", uid=f"claim-{number}")
            while (left := end - time.monotonic()) > 0:
                for method in ("NodePrepareResources", "NodeUnprepareResources"):
                    with contextlib.suppress(RpcError):
                        await client.call(method, getattr(dra, f"{method}Request")(claims=[claim]), timeout=left + 0.5)

        await asyncio.gather(*(repeat(number) for number in range(_AT_ONCE)))


@contextlib.asynccontextmanager
async def _kernel_events(host: Path, folder: Path) -> AsyncIterator[Scene]:
    """Flood with kernel events of a device of this machine, which is offered with 5,000 shares."""
    del host, folder
    uevent = Path("/sys/class/misc/fuse/uevent")
    if not os.access(uevent, os.W_OK):
        raise LeftOut(f"{uevent} cannot be written")

    def flood() -> None:
        end = time.monotonic() + DURATION
        while time.monotonic() < end:
            uevent.write_text("change")

    fuse = {"name": "example.com/fuse", "select": "fuse", "shares": DEVICES}
    yield Scene(Path("/"), lambda _: asyncio.to_thread(flood), (fuse,), unit=f"misc-fuse.{DEVICES - 1}")


@contextlib.asynccontextmanager
async def _files_below_a_glob(host: Path, folder: Path) -> AsyncIterator[Scene]:
    """Create and remove folders and files, as any user can, below a recursive glob."""
    del folder
    shared = host / "dev/shm"
    shared.mkdir()

    def flood() -> None:
        end = time.monotonic() + DURATION
        for number in itertools.count():
            if time.monotonic() > end:
                break
            made = shared / str(number)
            made.mkdir()
            (made / "ttyUSB0").touch()
            if number >= 500:
                shutil.rmtree(shared / str(number - 500))

    globbed = {"name": "example.com/serial", "select": {"path": "/dev/**/ttyUSB*"}}
    try:
        yield Scene(host, lambda _: asyncio.to_thread(flood), (globbed, UNITS))
    finally:
        shutil.rmtree(shared)


@contextlib.asynccontextmanager
async def _sysfs(host: Path, folder: Path) -> AsyncIterator[Scene]:
    """Rescan every second, with 1,000 USB devices whose sysfs files have contents that no kernel writes."""
    del folder
    devices, named = host / "sys/devices/pci0000:00/usb1", host / "sys/bus/usb/devices"
    named.mkdir(parents=True)
    for number in range(1_000):
        device = devices / f"1-{number}"
        device.mkdir(parents=True)
        (device / "uevent").write_text(f"DEVNAME=bus/usb/001/{number:03}\n")
        (device / "dev").write_text("9" * 5_000)
        (device / "serial").write_bytes(b"\xff\n" * 500_000)
        os.mkfifo(device / "product")
        (device / "manufacturer").symlink_to("manufacturer")
        (device / "idVendor").write_text("z" * 5_000)
        (named / device.name).symlink_to(device)
    settings = {"rescanSeconds": 1}
    usb = {"name": "example.com/usb", "select": {"kind": "usb"}}
    try:
        yield Scene(host, lambda _: asyncio.sleep(2 * DURATION), (usb, UNITS), settings=settings)
    finally:
        shutil.rmtree(devices)
        shutil.rmtree(named)


@contextlib.asynccontextmanager
async def _slow_disk(host: Path, folder: Path) -> AsyncIterator[Scene]:
    """Make each sync take 100 ms."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise LeftOut("a C compiler is needed: install gcc")
    library = folder / "slow.so"
    source = Path(__file__).with_name("slow_sync.c")
    microseconds = f"-DMICROSECONDS={_SYNC * 1e6:.0f}"
    words = (compiler, "-shared", "-fPIC", microseconds, "-o", library, source, "-ldl")
    assert await (await asyncio.create_subprocess_exec(*words)).wait() == 0
    yield Scene(host, lambda _: asyncio.sleep(DURATION), environment={"LD_PRELOAD": str(library)})


async def _never(request: Request) -> None:
    del request
    await asyncio.sleep(2 * DURATION)


async def _closes(request: Request) -> None:
    request.writer.close()


async def _endless_body(request: Request) -> None:
    await request.stream(b'{"a": "')
    while True:
        await request.piece(b"x" * 65_536)


async def _endless_headers(request: Request) -> None:
    await request.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await request.send(b"x: " + b"y" * 1_000 + b"\r\n")


async def _endless_pages(request: Request) -> None:
    await request.answer(_listed([_other_slice(number) for number in range(100)], **{"continue": "prepare again"}))


async def _endless_events(request: Request) -> None:
    if not request.is_watch:
        await request.answer(_listed([]))
        return
    await request.stream()
    for number in itertools.count():
        event = json.dumps({"type": "ADDED", "object": _other_slice(number) | {"kind": "ResourceSlice"}})
        await request.piece(event.encode() + b"\n")


async def _endless_line(request: Request) -> None:
    await (_endless_body(request) if request.is_watch else request.answer(_listed([])))


async def _large_object(request: Request) -> None:
    await request.answer(_LARGE)


async def _deep_object(request: Request) -> None:
    await request.answer(b"[" * 200_000)


def _listed(items: list[Json], **metadata: str) -> Json:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList"}
    return head | {"metadata": {"resourceVersion": "5"} | metadata, "items": items}


def _other_slice(number: int) -> Json:
    """Return a slice that the daemon did not create, with the largest number of devices."""
    metadata = {"name": f"slice-{number}", "uid": f"{number}", "resourceVersion": f"{number + 5}"}
    pool = {"name": _NODE, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"device-{each}"} for each in range(128)]
    spec = {"driver": _DRIVER, "nodeName": _NODE, "pool": pool, "devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "metadata": metadata, "spec": spec}


_LARGE = json.dumps(_claim("claim-0") | {"kind": "ResourceClaim", "x": list(range(500_000))}).encode()
_LARGEST = [{"env": {f"A{number}": "x" * 9_000}} for number in range(3)]
_LONGEST = [{"env": {"A0": "{devnodes}{ids}" * 640}}] * 32
SCENES: dict[str, Staged] = {
    "claims: 64 in parallel": _with_claims(),
    "claims: 64 of the largest in parallel": _with_claims(*_LARGEST),
    "claims: 64 with 32 configurations of 9 KB in parallel": _with_claims(*_LONGEST),
    "API server: never answers": _with_claims(hostile=_never),
    "API server: one byte at a time": _with_claims(hostile=drip),
    "API server: closes each connection": _with_claims(hostile=_closes),
    "API server: endless body": _with_claims(hostile=_endless_body),
    "API server: endless headers": _with_claims(hostile=_endless_headers),
    "API server: endless pages": _with_claims(hostile=_endless_pages),
    "API server: endless watch events": _with_claims(hostile=_endless_events),
    "API server: endless watch event": _with_claims(hostile=_endless_line),
    "API server: objects of 4 MB": _with_claims(hostile=_large_object),
    "API server: deeply nested objects": _with_claims(hostile=_deep_object),
    "continuous kernel events": _kernel_events,
    "folders created and removed below /dev/**": _files_below_a_glob,
    "sysfs: 1,000 devices with large files, pipes and link loops": _sysfs,
    f"disk with syncs of {_SYNC * 1000:.0f} ms": _slow_disk,
}
