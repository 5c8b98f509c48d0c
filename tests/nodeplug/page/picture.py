"""Draws docs/pictures/page.png, the page of a made-up node. Needs Chromium: `python -m tests.nodeplug.page.picture`."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodeplug.control import picture
from nodeplug.control.leases import LeaseView
from nodeplug.control.picture import NodeSummary, Tile
from nodeplug.control.status import ResourceView
from tests.browser import browser
from tests.nodeplug.page.clients import Answers, served

PICTURE = Path(__file__).resolve().parents[3] / "docs/pictures/page.png"
_WIDTH = 1180  # two NUMA nodes are beside each other
_GPU, _KVM, _FUSE = "example.com/gpu", "example.com/kvm", "example.com/fuse"
_UNITS = {_GPU: (8, 6, 3), _KVM: (10, 10, 1), _FUSE: (10, 10, 0)}
_PODS = {
    "gpu-0000-17-00-0": "train-0",
    "gpu-0000-17-01-0": "train-0",
    "gpu-0000-3a-00-0": "serve-7f9c",
    "misc-kvm": "serve-7f9c",
}
_WITHHELD, _UNHEALTHY = "gpu-0000-85-01-0", "gpu-0000-c1-00-0"
_NOISE, _XID = "fan makes a noise", "Xid 79: it has fallen off the bus"


def _tiles() -> Iterator[Tile]:
    for bus, numa in (("17", "0"), ("3a", "0"), ("85", "1"), ("c1", "1")):
        for slot in (0, 1):
            yield _tile(f"gpu-0000-{bus}-0{slot}-0", "gpu", _GPU, numa, f"pci0000:{bus}")
    yield _tile("misc-kvm", "misc", _KVM)
    yield _tile("misc-fuse", "misc", _FUSE)


def _tile(name: str, kind: str, resource: str, numa: str = "", root: str = "") -> Tile:
    pod = _PODS.get(name)
    holders = (f"ml/{pod}",) if pod else ()
    if name == _WITHHELD:
        return Tile(name, kind, numa, root, "unavailable", f"withheld: {_NOISE}", (resource,))
    if name == _UNHEALTHY:
        return Tile(name, kind, numa, root, "unhealthy", _XID, (resource,))
    return Tile(name, kind, numa, root, resources=(resource,), holders=holders, is_leased=bool(pod))


def _lease(device: str, pod: str, granted_at: float) -> LeaseView:
    is_share = device == "misc-kvm"
    return LeaseView(
        resource=_KVM if is_share else _GPU,
        api="device-plugin",
        unit=f"{device}.0" if is_share else device,
        holder=f"pod/ml/{pod}/app",
        namespace="ml",
        pod=pod,
        container="app",
        claim="",
        claim_uid="",
        pod_uids=(),
        devices=() if is_share else (device,),
        shared=(device,) if is_share else (),
        phase="done",
        granted_at=granted_at,
    )


class _Node(Answers):
    """The answers of the daemon of the made-up node."""

    async def __call__(self, question: Struct, kind: type[Any]) -> Any:
        found = await super().__call__(question, kind)
        if not isinstance(question, picture.Question):
            return found
        began = time.time() - 3600
        resources = tuple(
            ResourceView(name, "device-plugin", *units, is_registered=True, registrations=1, last_error="")
            for name, units in _UNITS.items()
        )
        about = NodeSummary("worker-1", "0.1.0", began, "/etc/nodeplug/config.yaml", (), resources, None, ())
        return picture.Answer(about, self.tiles, tuple(_lease(device, pod, began) for device, pod in _PODS.items()))


async def _draw(target: Path) -> None:
    node = _Node(*_tiles())
    node.log.record(
        "allocated", "allocated to pod ml/serve-7f9c, container app", resource=_GPU, device="gpu-0000-3a-00-0"
    )
    node.log.record("withheld", _NOISE, device=_WITHHELD)
    node.log.record("unhealthy", f"is unhealthy: {_XID}", resource=_GPU, device=_UNHEALTHY)
    with tempfile.TemporaryDirectory() as profile:
        async with served(node) as server, browser(Path(profile)) as page:
            await page.call("Emulation.setScrollbarsHidden", hidden=True)
            await page.show(f"http://127.0.0.1:{server.port}/", width=_WIDTH)
            await page.until("document.querySelectorAll('#events tbody tr').length === 3")
            height = await page.evaluate("document.documentElement.scrollHeight")
            await page.show(f"http://127.0.0.1:{server.port}/", width=_WIDTH, height=height)  # all of it is visible
            await page.until("document.querySelectorAll('#events tbody tr').length === 3")
            await page.screenshot(target)


if __name__ == "__main__":
    asyncio.run(_draw(PICTURE))
