"""A node that prepares claims: a made-up host, a real ledger and real files, and claims as an allocator writes them."""

import json
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import cdi
from dra_plugin.driver import ClaimFailed, ClaimRef, Prepared, PreparedDevice
from dra_plugin.preparing.claim_locks import ClaimLocks
from dra_plugin.preparing.device_status import StatusWriter
from dra_plugin.preparing.prepare import Paths, Preparer
from dra_plugin.publishing.offers import Offers
from dra_plugin.serving.calls import ClaimCalls
from hostdevices import Device
from hostdevices.presence import Presence
from resourceapi.objects import ObjectMeta, Quantity, v1
from resources.resource import Resource
from resources.selector import Ids
from tests.checkpoint.build import opened
from tests.deviceplugin.host import MadeUpHost
from tests.dra_plugin.kubelet_end import TIMEOUT
from tests.running import running

DRIVER, NODE = "nodeplug.dev", "worker-1"
UID = "0f8e2a10-0000-4000-8000-000000000001"
CONFIG = {"apiVersion": "nodeplug.dev/v1", "kind": "DeviceConfig"}


def resource(name: str, **options: Any) -> Resource:
    """A resource `example.com/NAME` of the misc device of that name."""
    return Resource(f"example.com/{name}", Ids((f"misc-{name}",)), api="dra", **options)


def result(device: str, request: str = "gpu", **options: Any) -> v1.DeviceRequestAllocationResult:
    """The allocation result of a request."""
    if "consumed" in options:
        options["consumed_capacity"] = {k: Quantity.parse(x) for k, x in options.pop("consumed").items()}
    return v1.DeviceRequestAllocationResult(
        **({"request": request, "driver": DRIVER, "pool": NODE, "device": device} | options)
    )


def config(
    *requests: str, source: str = v1.FROM_CLAIM, driver: str = DRIVER, **parameters: Any
) -> v1.DeviceAllocationConfiguration:
    """A DeviceConfig of an allocation."""
    opaque = v1.OpaqueDeviceConfiguration(driver=driver, parameters=CONFIG | parameters)
    return v1.DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)


def claim(
    *results: v1.DeviceRequestAllocationResult,
    configs: Sequence[v1.DeviceAllocationConfiguration] = (),
    name: str = "mine",
    uid: str = UID,
    **allocation: Any,
) -> v1.ResourceClaim:
    """An allocated claim."""
    annotations = allocation.pop("annotations", {})
    devices = v1.DeviceAllocationResult(results=results, config=tuple(configs))
    return v1.ResourceClaim(
        metadata=ObjectMeta(namespace="default", name=name, uid=uid, annotations=annotations),
        status=v1.ResourceClaimStatus(allocation=v1.AllocationResult(devices=devices, **allocation)),
    )


def uid(number: int) -> str:
    """The uid of a claim."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def ref(of: v1.ResourceClaim) -> ClaimRef:
    """The kubelet's reference to a claim."""
    return ClaimRef(of.metadata.namespace, of.metadata.name, of.metadata.uid)


class World:
    """The preparing side of one node, without an API server: it uses the claim of the last call. Runs while entered."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.made_up = MadeUpHost(folder / "host", *(names or ("fuse", "kvm")))
        self.resources: list[Resource] = [resource(name) for name in (names or ("fuse", "kvm"))]
        self.metadata = folder / "plugin/dra-device-metadata"
        self.has_metadata = True
        self.allowed_mounts: tuple[str, ...] = ()
        self.cdi = folder / "cdi"
        self.state = folder / "state"
        self.runtime = ""
        self.statuses: StatusWriter | None = None
        self._claims: dict[str, v1.ResourceClaim] = {}

    async def __aenter__(self) -> "World":
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def begin(self, boot_id: str = "this-boot") -> None:
        """Start as the daemon does."""
        self.ledger = await opened(self.state, boot_id)
        self.ledger.is_complete = True
        self.presence = Presence(self.made_up.host)
        self.offers = Offers(self.resources)
        claim_locks = ClaimLocks()
        self.preparer = Preparer(
            DRIVER,
            NODE,
            self.made_up.host,
            self.presence,
            self.ledger,
            Paths(cdi=self.cdi, metadata=self.metadata if self.has_metadata else None),
            self.offers.find,
            self.offers.attributes,
            claim_locks,
            statuses=self.statuses,
            allowed_mounts=self.allowed_mounts,
            runtime=self.runtime,
        )
        self.calls = ClaimCalls(self.preparer, self, claim_locks)
        await self.preparer.repair()
        self.scan()
        await self.run(self.preparer.run(), *([self.statuses.run()] if self.statuses else []))

    async def run(self, *parts: Coroutine[Any, Any, None]) -> None:
        """Run these parts until the end."""
        self._parts = AsyncExitStack()
        await self._parts.enter_async_context(running(*parts))

    async def end(self, grace: float = TIMEOUT) -> None:
        """Stop as the daemon does; running work is cancelled after `grace` seconds."""
        self.calls.close()
        await self._parts.aclose()
        await self.calls.finish(grace)
        await self.preparer.close()
        await self.ledger.close()

    async def restart(self, boot_id: str = "this-boot") -> None:
        """Stop, and start as a new process would."""
        await self.end()
        await self.begin(boot_id)

    def scan(self, **devices: Device) -> None:
        """Scan the host; `fuse=...` replaces the device `misc-fuse`."""
        found = self.found() | {f"misc-{name}": device for name, device in devices.items()}
        assigned = {r.name: tuple(x for x in found.values() if not r.selector.mismatch(x)) for r in self.resources}
        self.presence.update(found, [device for offered in assigned.values() for device in offered])
        self.offer(assigned)

    def found(self) -> dict[str, Device]:
        """The devices of the host."""
        return self.made_up.devices()

    def hold_reset(self, name: str) -> Path:
        """Put a device on a PCI bus; its reset blocks until a process reads the returned pipe."""
        address = "0000:00:05.0"
        pipe = self.made_up.root / "sys/bus/pci/devices" / address / "reset"
        pipe.parent.mkdir(parents=True)
        os.mkfifo(pipe)
        attributes = {"resource.kubernetes.io/pciBusID": address}
        self.scan(**{name: replace(self.made_up.devices()[f"misc-{name}"], attributes=attributes)})
        return pipe

    def offer(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Offer the devices of a scan."""
        leased = {x.unit.partition("@")[0].partition("/")[0] for x in self.ledger.leases()}
        self.offers.update(assigned, leased)
        self.preparer.update()

    async def fetch(self, named: ClaimRef) -> v1.ResourceClaim:
        """Return the current claim (`serving.claims.ClaimSource`)."""
        return self._claims[named.uid]

    async def outcomes(self, *wanted: v1.ResourceClaim) -> Mapping[str, Prepared]:
        """Prepare claims in one call."""
        self._claims.update((claim.metadata.uid, claim) for claim in wanted)
        return await self.calls.prepare([*map(ref, wanted)])

    async def failures(self, *done: ClaimRef) -> Mapping[str, ClaimFailed | None]:
        """Unprepare claims in one call."""
        return await self.calls.unprepare(done)

    async def prepare(self, wanted: v1.ResourceClaim) -> tuple[PreparedDevice, ...]:
        """Prepare a claim, which must succeed."""
        outcome = (await self.outcomes(wanted))[wanted.metadata.uid]
        assert not isinstance(outcome, ClaimFailed), outcome.reason
        return outcome

    async def refusal(self, wanted: v1.ResourceClaim) -> str:
        """Prepare a claim, which must fail, and return why."""
        outcome = (await self.outcomes(wanted))[wanted.metadata.uid]
        assert isinstance(outcome, ClaimFailed)
        return outcome.reason

    async def unprepare(self, done: v1.ResourceClaim) -> None:
        """Unprepare a claim, which must succeed."""
        assert await self.failures(ref(done)) == {done.metadata.uid: None}

    def units(self) -> list[str]:
        """The leased units."""
        return sorted(lease.unit for lease in self.ledger.leases())

    def specs(self) -> dict[str, cdi.Spec]:
        """The CDI specs by kind; checks that they are valid."""
        found = {}
        for path in sorted(self.cdi.glob("*.json")):
            spec = cdi.decode(path.read_bytes())
            assert cdi.validate(spec) == []
            found[f"{spec.kind} {path.name}"] = spec
        return found

    def devices(self) -> dict[str, cdi.ContainerEdits]:
        """The edits in the CDI directory by qualified name, as a runtime finds them."""
        return {
            cdi.qualified_name(spec.kind, device.name): device.container_edits
            for spec in self.specs().values()
            for device in spec.devices
        }

    def container(self, prepared: Sequence[PreparedDevice], request: str = "") -> "Container":
        """The edits for a container that refers to a claim, or to one of its requests."""
        named = [x for x in prepared if not request or request in {y.partition("/")[0] for y in x.requests}]
        return Container([self.devices()[i] for i in dict.fromkeys(i for x in named for i in x.cdi_device_ids)])

    def files(self) -> list[str]:
        """All files of claims."""
        found = (Path(at, x) for top in (self.cdi, self.metadata) for at, _, names in os.walk(top) for x in names)
        return sorted(str(x.relative_to(self.folder)) for x in found)


class Container:
    """Edits applied as by a runtime."""

    def __init__(self, edits: Sequence[cdi.ContainerEdits]) -> None:
        self.env = dict(each.split("=", 1) for one in edits for each in one.env)
        self.nodes = {node.path: node for one in edits for node in one.device_nodes}
        self.mounts = {mount.container_path: mount for one in edits for mount in one.mounts}
        self.gids = {gid for one in edits for gid in one.additional_gids}

    def metadata(self, path: str) -> list[Any]:
        """The objects in a mounted metadata file."""
        text = Path(self.mounts[path].host_path).read_text()
        decoder, objects = json.JSONDecoder(), []
        while text := text.lstrip():
            value, length = decoder.raw_decode(text)
            objects.append(value)
            text = text[length:]
        return objects
