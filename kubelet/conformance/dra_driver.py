"""Conformance test of a DRA driver in any language, against a stand-in kubelet and an API server.

The test writes allocated claims as a scheduler would, so that no class and no scheduler is needed, and admits pods
directly at the kubelet. Behaviour that would harm a kubelet or a user is a failure; other faults are warnings.
Source: DRA specification, section 1.7; observations 53-76.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubelet.conformance.api_requests import ApiRequests
from kubelet.conformance.run import CDI_NAME, Check, Outcome, PluginProcess, Run, kubelet_folder, remove_dead_sockets
from kubelet.conformance.slices import missing_devices_reason, wait_for_devices
from kubelet.dramanager import ApiCluster, allocated_claim
from kubelet.dramanager.claim_info import ClaimInfo
from kubelet.dramanager.plugins import PREPARE, UNPREPARE, DRAPlugin
from kubelet.errors import ClaimError, PluginCallError
from kubelet.node import Node
from kubelet.pods import container, pod
from kubelet.release import DEFAULT_VERSION, Version
from kubelet.rpc import DEFAULT_TIMEOUTS, Timeouts
from resourceapi.client.blocking import Client
from resourceapi.objects import v1
from resourceapi.objects.core import Pod
from resourceapi.objects.names import dns_subdomain_in_any_case

NODE = "node"
REQUEST = "verify"
RESTARTS = 3
SLOW_ANSWER = 10.0  # seconds; a kubelet's timeout is 45
HELPER_PAUSE = 90.0
"""Seconds until upstream's helper publishes again: it trusts its own write for a minute, then it waits for 30 s."""

_DEVICE_CLASS = "verify.example.com"


class DriverConformance(Run):
    """A conformance test of a DRA driver."""

    def __init__(
        self,
        command: Sequence[str],
        seconds: float,
        report: Callable[[Check], None],
        client: Client,
        kubeconfig: Path,
        requests: ApiRequests,
        device: str = "",
        kubernetes: Version = DEFAULT_VERSION,
        folder: Path | None = None,
        *,
        has_plugin_restarts: bool = True,
    ) -> None:
        """A test with an API server that contains only a node `node`.

        Args:
            command: the driver's command line. `{dir}` in it is replaced with the folder of registration sockets,
                `{kubelet}` with the kubelet's folder, `{kubeconfig}` with the kubeconfig, `{node}` with the node name.
            seconds: the timeout of each step.
            report: is called with each check.
            client: a client with an administrator's credentials.
            kubeconfig: the kubeconfig for the driver.
            requests: records the driver's requests to the API server.
            device: `pool/device` to claim; by default the first that the driver publishes.
            kubernetes: the kubelet's Kubernetes release.
            folder: the kubelet's own folder; by default a new one.
            has_plugin_restarts: whether to restart the driver; otherwise it is stopped only at the end.
        """
        super().__init__(seconds, report, has_plugin_restarts=has_plugin_restarts)
        self._command = command
        self._client = client
        self._cluster = ApiCluster(client)
        self._claims = client.resource(v1.ResourceClaim)
        self._slices = client.resource(v1.ResourceSlice)
        self._kubeconfig = kubeconfig
        self._requests = requests
        self._kubernetes: Version = kubernetes
        self._folder = folder
        self._device = device
        self._driver = ""
        self._published_as: Mapping[str, v1.Device] = {}

    async def run(self) -> None:
        """Run all checks. Raises OSError if the command cannot be started, and `ClientError`."""
        with kubelet_folder(self._folder) as folder:
            node = Node(
                folder,
                cluster=self._cluster,
                node_name=NODE,
                timeouts=Timeouts(claims=min(self.seconds, DEFAULT_TIMEOUTS.claims)),
                reconcile_period=0.1,
                kubernetes=self._kubernetes,
            )
            async with node:
                words = {
                    "{dir}": str(node.plugins_registry),
                    "{kubelet}": str(folder),
                    "{kubeconfig}": str(self._kubeconfig),
                    "{node}": NODE,
                }
                await self.start_and_check(node, [_substituted(part, words) for part in self._command])

    async def check(self, node: Node, process: PluginProcess) -> None:
        """Perform all checks."""
        self.group = "registration"
        if not await self._check_registration(node, "registers"):
            return
        self.group = "slices"
        device = await self._published_device()
        if device:
            self.group = "claims"
            if await self._check_claim_and_restarts(node, process, device):
                self.group = "bad requests"
                await self._check_bad_requests(node, device)
        self.group = "shutdown"
        await self._check_shutdown(node, process)
        self.group = "API server"
        self._check_writes()

    def new_refusals(self) -> str:
        """Return what the API server has refused since the last call, to append to the text of a failed check."""
        refused = self._requests.unreported()
        return f"; the API server refused: {refused}" if refused else ""

    def _check_writes(self) -> None:
        name, count = "its writes are accepted", self._requests.refused_writes()
        if not self._requests.count:
            self.note(name, "skip", "it sent no request")
        elif count:
            self.note(name, "warn", self._requests.unreported_writes() or f"{count} refused, see the failed checks")
        else:
            self.note(name, "pass")

    async def _check_registration(self, node: Node, name: str, previous: Collection[DRAPlugin] = ()) -> bool:
        """Wait until a driver is registered and connected; after the first time, that same driver.

        `previous` are registrations that do not count: the kubelet's connection can return before the registration.
        """
        started = time.monotonic()
        plugins = node.dra_manager.plugins

        def usable_drivers() -> list[str]:
            drivers = [self._driver] if self._driver else plugins.drivers()
            return [
                driver
                for driver in drivers
                if any(each.is_connected and each not in previous for each in plugins.instances(driver))
            ]

        try:
            self._driver, *_ = await node.until(usable_drivers, self.seconds)
        except TimeoutError:
            found = [self._driver] if self._driver else plugins.drivers()
            disconnected = [
                f"{each.driver} at {each.endpoint}" for driver in found for each in plugins.instances(driver)
            ]
            what = (
                f"no driver serves {', '.join(disconnected)}"
                if disconnected
                else "no driver is registered and connected"
            )
            if not self.reasons and not any(path.is_socket() for path in node.plugins_registry.rglob("*")):
                what = f"no socket is in {node.plugins_registry}, where {{dir}} leads,"
            return self.note(name, "fail", f"{what} after {self.seconds:.0f} s{self.reasons}{self.new_refusals()}")
        if wrong := dns_subdomain_in_any_case(self._driver):
            return self.note(name, "fail", f"GetInfo returns the name {self._driver!r}: {wrong[0]}")
        versions = ", ".join(self._plugin(node).versions)
        took = time.monotonic() - started
        return self.note(name, "pass", f"{self._driver}, {versions}, in {took:.2f} s")

    def _plugin(self, node: Node) -> DRAPlugin:
        return node.dra_manager.plugins.get(self._driver)

    async def _published_device(self) -> str:
        """Return the device to claim; empty if there is none."""
        if self._device:
            self.note("publishes devices", "skip", f"{self._device} is claimed, as requested")
            return self._device
        devices = await wait_for_devices(self._client.aio, self._driver, self.seconds)
        found = await asyncio.to_thread(self._slices.list, field_selector=f"spec.driver={self._driver}")
        if not devices:
            what = missing_devices_reason(found.items) or f"no ResourceSlice of {self._driver}"
            why = self.new_refusals()
            if not self._requests.count:
                why = "; it sent no request to the API server, whose kubeconfig is {kubeconfig} in the command"
            self.note("publishes devices", "fail", f"{what} after {self.seconds:.0f} s{why}")
            return ""
        self.note("publishes devices", "pass", f"{len(devices)} device(s)")
        other_nodes = sorted({each.spec.node_name or NODE for each in found.items} - {NODE})
        if other_nodes:
            text = f"for {', '.join(other_nodes)}, but it runs on {NODE}: no pod can get them"
            self.note("publishes for its node", "fail", text)
        self._published_as = devices
        return next(iter(devices))

    async def _check_claim_and_restarts(self, node: Node, process: PluginProcess, device: str) -> bool:
        """Check a claim from its pod's start to its end; return whether the driver came back after each restart."""
        info = await self._claim("verify", device)
        started = time.monotonic()
        await node.admit(_user("verify"))
        took = time.monotonic() - started
        text = ""
        if node.status("verify").phase != "Running":
            text = await self._pod_reasons(node, "verify")
        if text:
            self.note("a pod with a claim runs", "fail", f"{text}{self.new_refusals()}")
        else:
            slow = took > SLOW_ANSWER
            self.note("a pod with a claim runs", "warn" if slow else "pass", f"{took * 1000:.1f} ms")
            self._check_prepare_answer(node, device)
            await self._check_repeated_prepare(node, info, "preparing again changes nothing")
            self.group = "restarts of the kubelet"
            if not await self._check_kubelet_restarts(node) or not await self._check_driver_restarts(
                node, process, info
            ):
                return False
        self.group = "end of the claim"
        await self._check_end_of_claim(node, info)
        return True

    async def _pod_reasons(self, node: Node, name: str) -> str:
        """Return why a pod's claims cannot be prepared; empty if they are prepared now."""
        (asking,) = [each for each, _ in node.pods() if each.metadata.name == name]
        try:
            await node.dra_manager.prepare_resources(asking)
        except ClaimError as error:
            return str(error)
        await node.sync(name)
        return ""

    def _check_prepare_answer(self, node: Node, device: str) -> None:
        """Check the prepared devices that the driver returned."""
        (info,) = node.dra_manager.cache.claims()
        prepared = info.devices[self._driver] or []
        wrong = [
            f"{entry.pool_name}/{entry.device_name} was not allocated"
            for entry in prepared
            if _device_key(entry) != device
        ]
        wrong += [
            f"request {name!r} is not in the claim"
            for entry in prepared
            for name in entry.request_names or ()
            if name.partition("/")[0] != REQUEST
        ]
        names = node.claimed_devices("verify", "c")
        wrong += [f"CDI name {name!r} is not vendor/class=name" for name in names if not CDI_NAME.fullmatch(name)]
        if wrong:
            self.note("its answer lists the prepared devices", "fail", wrong[0])
        elif not prepared:
            self.note("its answer lists the prepared devices", "warn", "no device; its health can never be shown")
        else:
            self.note("its answer lists the prepared devices", "pass", ", ".join(names) or "no CDI device")

    async def _check_repeated_prepare(self, node: Node, info: ClaimInfo, name: str) -> None:
        """Check a repeated prepare: the kubelet repeats calls without a known result, and calls after its restart."""
        before = node.dra_manager.cache.claims()[0].devices[self._driver] or []
        answers = await self._call(node, PREPARE, name, info)
        if answers is None:
            return
        found = answers.get(info.uid)
        if found is None or found.error:
            self.note(name, "fail", found.error if found is not None else "the claim is not in the answer")
        elif sorted(map(_device_key, before)) != sorted(map(_device_key, found.devices)):
            self.note(name, "fail", "other devices")
        elif _cdi_ids(before) != _cdi_ids(found.devices):
            self.note(name, "fail", f"other CDI ids: {_cdi_ids(found.devices)} instead of {_cdi_ids(before)}")
        else:
            self.note(name, "pass")

    async def _check_kubelet_restarts(self, node: Node) -> bool:
        """Restart the kubelet, which deletes its node's slices at each start; then wait once for the new slices."""
        deleted: set[str] = set()
        for number in range(1, RESTARTS + 1):
            listed = await asyncio.to_thread(self._slices.list, field_selector=f"spec.nodeName={NODE}")
            deleted.update(each.metadata.uid for each in listed.items)
            await node.restart()
            if not await self._check_registration(node, f"comes back after restart {number}"):
                return False
        if deleted:
            why = "the kubelet deletes them when it starts"
            await self._check_republishing("publishes its devices again", deleted, HELPER_PAUSE + self.seconds, why)
        return True

    async def _check_driver_restarts(self, node: Node, process: PluginProcess, info: ClaimInfo) -> bool:
        """Restart the driver, once after SIGTERM and once after SIGKILL, while a pod has a claim.

        Returns whether it came back. After the crash the claim is not prepared again, so that it is unprepared by a
        driver that has not prepared it.
        """
        phases = (("restart of the driver", "its restart", False), ("crash of the driver", "a crash", True))
        for self.group, event, is_crash in phases:
            if not self.has_plugin_restarts:
                self.note(f"comes back after {event}", "skip", "left out, as requested")
                continue
            if not await self._restart_driver(node, process, event, is_crash=is_crash):
                return False
            if not is_crash:
                await self._check_repeated_prepare(node, info, f"preparing again after {event} changes nothing")
        remove_dead_sockets(node.plugins_registry)
        return True

    async def _restart_driver(self, node: Node, process: PluginProcess, event: str, *, is_crash: bool) -> bool:
        """Restart the driver; return whether it came back. Its slices are deleted, as by a kubelet after 30 s."""
        plugins, name = node.dra_manager.plugins, f"comes back after {event}"
        previous, folder = plugins.instances(self._driver), node.plugins_registry

        def is_gone() -> bool:
            return not plugins.is_usable(self._driver)

        if not await self.stop_plugin(node, process, name, folder, is_gone, is_crash=is_crash):
            return False
        deleted = await self._delete_slices()
        await process.start()
        if not await self._check_registration(node, name, previous):
            return False
        if deleted or self._published_as:  # a driver can have deleted them itself when it was stopped
            why = "the kubelet deletes them while no driver runs"
            await self._check_republishing(f"publishes its devices after {event}", deleted, self.seconds, why)
        return True

    async def _delete_slices(self) -> set[str]:
        """Delete the node's slices, and return their uids."""
        listed = await asyncio.to_thread(self._slices.list, field_selector=f"spec.nodeName={NODE}")
        await self._cluster.delete_slices(NODE, self._driver)
        return {each.metadata.uid for each in listed.items if each.spec.driver == self._driver}

    async def _check_republishing(self, name: str, deleted: set[str], seconds: float, why: str) -> None:
        """Wait for the slices of a driver whose slices were deleted."""
        began = time.monotonic()
        republished = await wait_for_devices(self._client.aio, self._driver, seconds, deleted)
        if republished:
            self.note(name, "pass", f"in {time.monotonic() - began:.1f} s")
        else:
            self.note(name, "fail", f"they are not there after {seconds:.0f} s; {why}{self.new_refusals()}")

    async def _check_end_of_claim(self, node: Node, info: ClaimInfo) -> None:
        """Check unprepare after the claim was deleted, which can happen in a cluster."""
        name = "is unprepared without the claim"
        await asyncio.to_thread(self._claims.delete, info.name, info.namespace)
        await node.remove("verify")
        try:
            await node.until(lambda: not node.pods(), self.seconds)
        except TimeoutError:
            self.note(name, "fail", f"the pod has not ended after {self.seconds:.0f} s{self.reasons}")
            await node.remove("verify", force=True)
            return
        self.note(name, "pass")
        await self._check_unprepare(node, "unpreparing again does no harm", info)

    async def _check_bad_requests(self, node: Node, device: str) -> None:
        missing_claim = ClaimInfo("default", "verify-nobody", "00000000-0000-4000-8000-000000000000", [self._driver])
        claim = await self._claim("verify-two", device)
        other_uid_claim = ClaimInfo(claim.namespace, claim.name, "00000000-0000-4000-8000-000000000001", [self._driver])
        await self._check_refusal(node, "a claim that does not exist is refused", missing_claim)
        await self._check_refusal(node, "a claim with the uid of another is refused", other_uid_claim)
        await self._check_unprepare(node, "a claim that was never prepared is unprepared", missing_claim)
        name = "one bad claim does not harm the other"
        answers = await self._call(node, PREPARE, name, claim, missing_claim, of_whole_call="warn")
        if answers is not None:
            good = answers.get(claim.uid)
            text = good.error if good is not None else "the good one is not in the answer"
            self.note(name, "fail" if text else "pass", text)
        await self._check_unprepare(node, "a claim that no pod has is unprepared", claim)
        for method in (PREPARE, UNPREPARE):
            await self._call(node, method, f"{method} without claims is answered")
        await asyncio.to_thread(self._claims.delete, claim.name, claim.namespace)

    async def _check_refusal(self, node: Node, name: str, info: ClaimInfo) -> None:
        answers = await self._call(node, PREPARE, name, info, of_whole_call="warn")
        if answers is None:
            return
        found = answers.get(info.uid)
        if found is None:
            self.note(name, "fail", "it is not in the answer; every claim has to be")
        else:
            self.note(name, "pass" if found.error else "fail", found.error or "it was prepared")
        with contextlib.suppress(ClaimError, PluginCallError, TimeoutError):
            await self.within_timeout(self._plugin(node).call(UNPREPARE, [info]))

    async def _check_unprepare(self, node: Node, name: str, info: ClaimInfo) -> None:
        answers = await self._call(node, UNPREPARE, name, info)
        if answers is None:
            return
        found = answers.get(info.uid)
        text = found.error if found is not None else "it is not in the answer; every claim has to be"
        self.note(name, "fail" if text else "pass", f"{text}; its pod would never end" if text else "")

    async def _call(
        self, node: Node, method: str, name: str, *infos: ClaimInfo, of_whole_call: Outcome = "fail"
    ) -> Mapping[str, Any] | None:
        """Call the driver directly; return None and record a check if the whole call fails.

        `of_whole_call` is the outcome of that check. For a bad claim it is a warning, because upstream's Go helper does
        the same, and harmless: a call has the claims of one pod, which waits for all of them anyway.
        """
        try:
            return await self.within_timeout(self._plugin(node).call(method, infos))
        except ClaimError as error:
            self.note(name, "fail", str(error))
        except PluginCallError as error:
            self.note(name, of_whole_call, f"the whole call failed, for all claims: {error}")
        except TimeoutError:
            self.note(name, "fail", "no answer")
        return None

    async def _check_shutdown(self, node: Node, process: PluginProcess) -> None:
        if not await self.stop_and_check(process):
            return
        left = sorted(path.name for path in node.plugins_registry.rglob("*") if path.is_socket())
        self.note("leaves no registration socket behind", "warn" if left else "pass", ", ".join(left))

    async def _claim(self, name: str, device: str) -> ClaimInfo:
        """Create a claim to which the device is allocated, reserved for the pod with the same name."""
        allocated = allocated_claim(name, self._driver, f"{REQUEST}/{device}", users=[name])
        status = _as_scheduled(allocated.status, self._published_as.get(device))
        exactly = v1.ExactDeviceRequest(device_class_name=_DEVICE_CLASS, allocation_mode=v1.EXACT_COUNT, count=1)
        spec = v1.ResourceClaimSpec(devices=v1.DeviceClaim(requests=(v1.DeviceRequest(name=REQUEST, exactly=exactly),)))

        def put() -> v1.ResourceClaim:
            created = self._claims.create(replace(allocated, spec=spec))
            return self._claims.update_status(replace(created, status=status))

        return ClaimInfo.from_claim(await asyncio.to_thread(put))


def _user(name: str) -> Pod:
    """Return a pod whose container uses the claim with the same name; the name is also its uid."""
    return pod(name, container("c", claims=["claim"]), uid=name, claims={"claim": name})


def _substituted(part: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        part = part.replace(word, value)
    return part


def _device_key(device: Any) -> str:
    return f"{device.pool_name}/{device.device_name}"


def _cdi_ids(devices: Iterable[Any]) -> str:
    return ", ".join(sorted(id_ for device in devices for id_ in device.cdi_device_ids or ())) or "none"


def _as_scheduled(status: v1.ResourceClaimStatus, device: v1.Device | None) -> v1.ResourceClaimStatus:
    """Return the status as a scheduler writes it: a device that claims can share gets a share id and amounts.

    The amount of a capacity that no request names is the policy's default, otherwise all of it (KEP-5075).
    """
    if device is None or not device.allow_multiple_allocations or status.allocation is None:
        return status
    amounts = {}
    for name, capacity in device.capacity.items():
        policy = capacity.request_policy
        amounts[name] = capacity.value if policy is None or policy.default is None else policy.default
    devices = status.allocation.devices
    results = tuple(replace(x, share_id=str(uuid.uuid4()), consumed_capacity=amounts) for x in devices.results)
    return replace(status, allocation=replace(status.allocation, devices=replace(devices, results=results)))
