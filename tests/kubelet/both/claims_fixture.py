"""The drivers and claims of a scenario."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from checkpoint.kubelet_claims import ClaimState, encode, load
from kubelet.pods import container, pod
from kubelet.stubs import DRAPluginStub, claimed
from kubeletapi.dra.v1 import api_pb2 as dra
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.objects import ObjectMeta, v1
from resourceapi.objects.claim_status_rules import MAX_USERS
from resourceapi.objects.core import Container, Pod
from tests.kubelet.both.world import INJECTED, ScenarioFixture, World

PREPARE = "NodePrepareResources"
UNPREPARE = "NodeUnprepareResources"
POOL = "pool"
ACTION_TIMEOUT = 40.0  # the longest wait for an action that the kubelet takes on its own

_OTHER_PODS = tuple(
    v1.ResourceClaimConsumerReference(api_group="both.example", resource="strangers", name="x", uid=f"x{number}")
    for number in range(MAX_USERS)
)


class Listed(NamedTuple):
    """A container's claimed device in the pod resources API."""

    claim: str
    device: str
    cdi: tuple[str, ...] = ()
    share_id: str = ""


class ClaimsFixture(ScenarioFixture):
    """The drivers and claims of one scenario, and its plugins. Its drivers prepare the allocated devices."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._claims: dict[str, v1.ResourceClaim] = {}  # by uid

    @property
    def driver_name(self) -> str:
        """The name of the scenario's driver."""
        return f"{self.name}.both.example"

    @property
    def no_share(self) -> UnsetType | None:
        """The value that means "no share ID" in the kubelet's file."""
        return None if self.release.has_share_ids else UNSET

    @property
    def service(self) -> Path:
        """The socket of a driver that uses a second socket for its registration."""
        return self.world.kubelet_folder / f"{self.name}.sock"

    async def driver(self, driver: str | None = None, **options: Any) -> DRAPluginStub:
        """A driver that the kubelet has registered and can call."""
        stub = await self.serving(driver, **options)
        assert await self.registration_status(stub) == (True, "")
        await self.world.until_connected(stub.socket)
        return stub

    async def serving(self, driver: str | None = None, endpoint: Path | None = None, **options: Any) -> DRAPluginStub:
        """A driver, by default the scenario's, whose socket is in the kubelet's plugin registry.

        `endpoint` is the endpoint that it announces, if this is not its real one.
        """
        self._plugins += 1
        name = self.driver_name if driver is None else driver
        options = {"name": f"{self.name}{self._plugins}.sock"} | options
        stub = DRAPluginStub(self.registry, name, lambda asked: self.allocated(asked.uid, name), **options)
        if endpoint is not None:
            stub.info.endpoint = str(endpoint)
        return await self.stack.enter_async_context(stub)

    async def registration_status(self, driver: DRAPluginStub) -> tuple[bool, str]:
        """The kubelet's first NotifyRegistrationStatus to a driver: registered, and the error."""
        await driver.until(lambda: bool(driver.notified), ACTION_TIMEOUT)
        return driver.notified[0]

    async def claim(
        self,
        name: str = "",
        *devices: str,
        drivers: Mapping[str, str] = MappingProxyType({}),
        shares: Sequence[str] = (),
        room: int = MAX_USERS,
        is_empty: bool = False,
    ) -> v1.ResourceClaim:
        """A claim `<scenario><name>` with allocated devices in the form `request/device`; by default `r/g0`.

        Args:
            name: the suffix after the scenario's name.
            devices: requests and devices.
            drivers: the drivers of those devices that are not the scenario's driver's.
            shares: the devices' share IDs, if they have any.
            room: the number of free places in reservedFor; other pods have the rest.
            is_empty: whether the allocation contains no devices.
        """
        pairs = [each.split("/") for each in devices or ("r/g0",)]
        results = tuple(
            v1.DeviceRequestAllocationResult(
                request=request,
                driver=drivers.get(device, self.driver_name),
                pool=POOL,
                device=device,
                share_id=share,
            )
            for (request, device), share in zip(pairs, shares or (None,) * len(pairs), strict=True)
        )
        exactly = v1.ExactDeviceRequest(device_class_name="both.example", allocation_mode=v1.EXACT_COUNT, count=1)
        requests = tuple(v1.DeviceRequest(name=name, exactly=exactly) for name in dict.fromkeys(x for x, _ in pairs))
        allocation = v1.AllocationResult(devices=v1.DeviceAllocationResult(results=() if is_empty else results))
        made = await self.world.put_claim(
            v1.ResourceClaim(
                metadata=ObjectMeta(name=f"{self.name}{name}", namespace="default"),
                spec=v1.ResourceClaimSpec(devices=v1.DeviceClaim(requests=requests)),
                status=v1.ResourceClaimStatus(allocation=allocation, reserved_for=_OTHER_PODS[room:]),
            )
        )
        self.stack.push_async_callback(self.world.remove_claim, made.metadata.name)
        self._claims[made.metadata.uid] = made
        self._write_cdi(made)
        return made

    def allocated(self, uid: str, driver: str) -> list[dra.Device]:
        """A driver's answer for a claim: each allocated device with a CDI device of its own."""
        return [
            claimed(
                [result.request],
                result.pool,
                result.device,
                self.cdi(self._claims[uid], result.device),
                share_id=result.share_id,
            )
            for result in _results(self._claims[uid])
            if result.driver == driver
        ]

    def cdi(self, claim: v1.ResourceClaim, device: str) -> str:
        """The name of the CDI device of a claimed device."""
        return f"both.example/{self.name}={claim.metadata.uid}-{device}"

    def user(self, name: str, *claims: v1.ResourceClaim, containers: Iterable[Container] = (), **options: Any) -> Pod:
        """A pod `<scenario><name>` that names its claims a, b, c; by default one container `c` uses all of them."""
        references = {key: each.metadata.name for key, each in zip("abc", claims, strict=False)}
        using = tuple(containers) or (container("c", claims=references),)
        return pod(f"{self.name}{name}", *using, claims=references, **options)

    async def refused(self, asking: Pod) -> str:
        """The reason why a pod's claims could not be prepared, without the prefix that every such event has."""
        view = await self.run(asking, "PodInitializing" if asking.spec.init_containers else "ContainerCreating")
        assert view.phase == "Pending"
        text = await self.world.prepare_failure(asking.metadata.name)
        head = "Failed to prepare dynamic resources: prepare dynamic resources: "
        assert text.startswith(head)
        return text.removeprefix(head)

    async def claims_in_use(self) -> dict[str, float]:
        """Driver -> number of claims, from the kubelet's metrics."""
        return {each.labels["driver_name"]: each.value for each in await self.counted("dra_resource_claims_in_use")}

    def stored(self) -> dict[str, ClaimState]:
        """The scenario's claims in the kubelet's file, by name. Checks that our codec writes the same bytes."""
        raw = (self.world.kubelet_folder / "dra_manager_state").read_bytes()
        found = load(raw).claims
        assert encode(found) == raw
        return {each.claim_name: each for each in found or () if each.claim_name.startswith(self.name)}

    async def listed(self, name: str) -> dict[str, list[Listed]]:
        """Container -> its claimed devices, from the pod resources API."""
        return {
            each.name: [
                Listed(
                    claim.claim_name,
                    resource.device_name,
                    tuple(device.name for device in resource.cdi_devices),
                    resource.share_id,
                )
                for claim in each.dynamic_resources
                for resource in claim.claim_resources
            ]
            for each in await self._containers(name)
        }

    async def listed_claims(self, name: str) -> dict[str, list[str]]:
        """Container -> the names of its claims, with or without devices, from the pod resources API."""
        return {
            each.name: [claim.claim_name for claim in each.dynamic_resources] for each in await self._containers(name)
        }

    async def _containers(self, name: str) -> Sequence[podresources.ContainerResources]:
        request = podresources.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
        found: Sequence[podresources.ContainerResources] = (await self.ask("Get", request)).pod_resources.containers
        return found

    def _write_cdi(self, claim: v1.ResourceClaim) -> None:
        uid = claim.metadata.uid
        devices = [
            {
                "name": f"{uid}-{device}",
                "containerEdits": {
                    "env": [f"{INJECTED}{uid.replace('-', '')}{device}={self.cdi(claim, device)}"],
                },
            }
            for device in dict.fromkeys(result.device for result in _results(claim))
        ]
        path = self.world.cdi_folder / f"both-{uid}.json"
        spec = {"cdiVersion": "0.6.0", "kind": f"both.example/{self.name}", "devices": devices}
        _replace(path, json.dumps(spec))
        self.stack.callback(path.unlink, missing_ok=True)


def _results(claim: v1.ResourceClaim) -> tuple[v1.DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    return allocation.devices.results if allocation is not None else ()


def _replace(path: Path, content: str) -> None:
    """Write a file atomically."""
    half = path.with_suffix(".new")
    half.write_text(content)
    half.rename(path)
