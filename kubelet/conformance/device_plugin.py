"""Conformance test of a device plugin in any language, against a stand-in kubelet.

The plugin is a command. The test starts it, waits for its registration, sends valid and invalid requests, restarts the
kubelet, and stops the plugin. Behaviour that would harm a kubelet or a user is a failure; other faults are warnings.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from google.protobuf.message import Message

from grpcunix import Client, RpcError, is_live
from kubelet.conformance.run import CDI_NAME, Check, Outcome, PluginProcess, Run, kubelet_folder, remove_dead_sockets
from kubelet.devicemanager import HEALTHY, UNHEALTHY
from kubelet.devicemanager.endpoint import Endpoint
from kubelet.errors import PluginCallError
from kubelet.node import Node
from kubelet.pods import container, pod
from kubelet.release import DEFAULT_VERSION, Version
from kubelet.rpc import await_unary, connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resourceapi.objects.core import PodStatus

RESTARTS = 3
SLOW_ANSWER = 1.0  # seconds; a kubelet admits no other pod meanwhile
MAX_ID_LENGTH = 63
HOLDER = "verify-holder"
"""The pod that has devices while the plugin restarts."""

_UNKNOWN = "nodeplug-no-such-device"
_BAD_REQUESTS: list[tuple[str, str, Message]] = [
    ("a request without containers is answered", "Allocate", api.AllocateRequest()),
    (
        "a request without devices is answered",
        "Allocate",
        api.AllocateRequest(container_requests=[api.ContainerAllocateRequest()]),
    ),
    (
        "a preference among nothing is answered",
        "GetPreferredAllocation",
        api.PreferredAllocationRequest(container_requests=[api.ContainerPreferredAllocationRequest()]),
    ),
    (
        "a start with an unknown device is answered",
        "PreStartContainer",
        api.PreStartContainerRequest(devices_ids=[_UNKNOWN]),
    ),
]
_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]


class Conformance(Run):
    """A conformance test of a device plugin."""

    def __init__(
        self,
        command: Sequence[str],
        seconds: float,
        report: Callable[[Check], None],
        kubernetes: Version = DEFAULT_VERSION,
        folder: Path | None = None,
        *,
        has_plugin_restarts: bool = True,
    ) -> None:
        """`{dir}` in `command` is replaced with the folder of kubelet.sock; `seconds` is the timeout of each step.

        The kubelet's own folder is `folder`, by default a new one. Without `has_plugin_restarts`, the plugin is stopped
        only at the end.
        """
        super().__init__(seconds, report, has_plugin_restarts=has_plugin_restarts)
        self._since = ""  # what has happened since the registration that is expected to be repeated
        self._command = command
        self._kubernetes: Version = kubernetes
        self._folder = folder

    async def run(self) -> None:
        """Run all checks. Raises OSError if the command cannot be started."""
        with kubelet_folder(self._folder) as folder:
            async with Node(folder, kubernetes=self._kubernetes) as node:
                await self.start_and_check(
                    node, [part.replace("{dir}", str(node.device_plugins)) for part in self._command]
                )

    async def check(self, node: Node, process: PluginProcess) -> None:
        """Perform all checks."""
        self.group = "registration"
        if not await self._check_registration(node, "registers and lists its devices"):
            return
        resources = sorted(node.endpoints())
        self._check_lists(node)
        if await self._check_calls(node, resources):
            self.group = "restarts of the kubelet"
            if await self._check_kubelet_restarts(node, resources) and await self._check_plugin_restarts(
                node, process, resources
            ):
                await self._check_second_lists(node, resources)
        self.group = "shutdown"
        await self._check_shutdown(node, process)

    async def _check_calls(self, node: Node, resources: Sequence[str]) -> bool:
        """Send requests for each resource; return False if the kubelet still waits for an answer and is blocked."""
        for resource in resources:
            self.group = resource
            endpoint = node.endpoints()[resource]
            await self._check_options(endpoint)
            if not await self._check_allocations(node, resource):
                return False
            await self._check_preferred_allocation(node, resource)
            await self._check_bad_requests(node, resource, endpoint)
        return True

    async def _check_registration(
        self, node: Node, name: str, wanted: Sequence[str] = (), healthy: Collection[str] = ()
    ) -> bool:
        """Wait until every endpoint has sent a list, and no new endpoint has registered for a second.

        `wanted` are the resources that must be among them, `healthy` those that must have a healthy device.
        """
        started = time.monotonic()

        def is_ready() -> bool:
            known = [resource for resource, endpoint in node.endpoints().items() if not endpoint.is_stopped]
            has_lists = bool(known) and set(known) >= set(wanted) and set(known) <= node.devices().keys()
            return has_lists and all(node.allocatable().get(resource) for resource in healthy)

        try:
            await node.until(is_ready, self.seconds)
            with contextlib.suppress(TimeoutError):  # several resources can register one after the other
                while not wanted:
                    known = node.endpoints()
                    await node.until(partial(_has_changed, node, known), 1.0)
            await node.until(is_ready, self.seconds)
        except TimeoutError:
            listed = node.endpoints().keys() & node.devices().keys()
            missing = sorted(
                resource for resource in wanted if resource not in listed or _has_only_stopped_plugin(node, resource)
            )
            unlisted = sorted(node.endpoints().keys() - listed)
            unhealthy = sorted(resource for resource in healthy if not node.allocatable().get(resource))
            what = "nothing was registered and listed"
            if missing:
                what = f"still missing: {', '.join(missing)}"
            elif unlisted:
                what = f"no list of {', '.join(unlisted)} came"
            elif unhealthy:
                what = f"no list with a healthy device of {', '.join(unhealthy)} came"
            elif listed:
                what = f"{', '.join(sorted(listed))} was listed, and is gone"
            why = "" if unlisted and not missing else self._unregistered_reason(node, missing)
            return self.note(name, "fail", f"{what} after {self.seconds:.0f} s{self.reasons}{why}")
        count = len(node.endpoints())
        return self.note(name, "pass", f"{count} resource(s) in {time.monotonic() - started:.2f} s")

    def _unregistered_reason(self, node: Node, missing: Sequence[str]) -> str:
        """Return what the registration lacks: the call, or a plugin at the socket that the call named."""
        offered = {x: path for x, path in node.manager.server.offered.items() if not missing or x in missing}
        dead_sockets = [
            f"{resource} has its endpoint at {path}" for resource, path in offered.items() if not is_live(path)
        ]
        if dead_sockets:
            return f"; {' and '.join(dead_sockets)}, where nothing listens: serve below {{dir}} before you register"
        if offered or self.reasons:
            return ""
        text = f"; v1beta1.Registration/Register was not called at {node.kubelet_socket}{self._since}"
        has_folder = self._folder is not None or any("{dir}" in part for part in self._command)
        return text if has_folder else f"{text}; the command has no {{dir}}, which becomes the folder of this socket"

    def _check_lists(self, node: Node) -> None:
        for resource, devices in sorted(node.devices().items()):
            unknown_health = sorted({device.health for device in devices.values()} - {HEALTHY, UNHEALTHY})
            if wrong := self._id_problem(resource, devices):
                self.note(f"ids of {resource}", "warn", wrong)
            if unknown_health:
                self.note(
                    f"health of {resource}", "warn", f"{', '.join(map(repr, unknown_health))} counts as unhealthy"
                )
            negative = [id_ for id_, device in devices.items() if any(node < 0 for node in device.nodes)]
            if negative:
                self.note(f"topology of {resource}", "fail", f"{negative[0]} names a negative NUMA node")
            self.note(f"list of {resource}", "pass" if devices else "warn", f"{len(devices)} device(s)")

    def _id_problem(self, resource: str, ids: Collection[str]) -> str:
        """Return the faults of the ids of a list; empty if there are none."""
        wrong = ["a device has none"] if "" in ids else []
        if resource in self.repeated:
            wrong.append(f"{self.repeated[resource]}, and is one device to the kubelet")
        wrong += [f"{each} has more than {MAX_ID_LENGTH} characters" for each in ids if len(each) > MAX_ID_LENGTH][:1]
        return "; ".join(wrong)

    async def _check_options(self, endpoint: Endpoint) -> None:
        options = endpoint.options
        assert options is not None
        named = [
            name
            for name, is_set in (
                ("PreStartContainer", options.pre_start_required),
                ("GetPreferredAllocation", options.get_preferred_allocation_available),
            )
            if is_set
        ]
        self.note("options", "pass", f"requests {' and '.join(named) or 'no optional calls'}")

    async def _check_allocations(self, node: Node, resource: str) -> bool:
        """Admit pods; return False if the plugin does not answer, for which a kubelet would wait without end."""
        healthy = _healthy(node, resource)
        if not healthy:
            return self.note("allocation", "warn", "no healthy device, so Allocate is not tested")
        answers: list[api.ContainerAllocateResponse] = []
        for label, amount in _amounts(len(healthy), has_half=False).items():
            for repetition in ("", ", again"):
                wanted = pod("verify", container("c", {resource: amount}), restart_policy="Never")
                name = f"a container with {label}{repetition}"
                started = time.monotonic()
                try:
                    status = await self.within_timeout(node.admit(wanted))
                except TimeoutError:
                    timeout_text = f"no answer after {self.seconds:.0f} s; no other pod is admitted meanwhile"
                    return self.note(name, "fail", timeout_text)
                took = time.monotonic() - started
                if status.phase != "Running":
                    self.note(name, "fail", _not_running_reason(status))
                else:
                    slow = took > SLOW_ANSWER
                    detail = (
                        f"took {took:.1f} s; no other pod is admitted meanwhile" if slow else f"{took * 1000:.1f} ms"
                    )
                    self.note(name, "warn" if slow else "pass", detail)
                    answers.append(node.plugin_responses("verify", "c")[resource])
                await node.remove("verify")
        if answers:
            wrong = next(filter(None, map(_response_problem, answers)), "")
            self.note("the answer for the runtime", "fail" if wrong else "pass", wrong)
        return True

    async def _check_preferred_allocation(self, node: Node, resource: str) -> None:
        endpoint = node.endpoints()[resource]
        healthy = _healthy(node, resource)
        if endpoint.options is None or not endpoint.options.get_preferred_allocation_available or not healthy:
            self.note("preferred allocation", "skip", "not announced" if healthy else "no healthy device")
            return
        for must_include in ([], healthy[-1:]):
            for label, size in _amounts(len(healthy)).items():
                name = f"preferred allocation of {label}{', one of them given' if must_include else ''}"
                try:
                    response = await self.within_timeout(endpoint.preferred_allocation(healthy, must_include, size))
                except (PluginCallError, TimeoutError) as error:
                    self.note(name, "fail", f"{error or 'no answer'}; it would fail the pod")
                    continue
                self.note(name, *_evaluate_preferred(response, healthy, must_include, size))

    async def _check_bad_requests(self, node: Node, resource: str, endpoint: Endpoint) -> None:
        try:
            await self.within_timeout(endpoint.allocate([_UNKNOWN]))
        except PluginCallError as error:
            is_asked = not endpoint.is_stopped
            text = str(error) if is_asked else f"it could not be asked{self.reasons}"
            self.note("an unknown device is refused", "pass" if is_asked else "skip", text)
        except TimeoutError:
            self.note("an unknown device is refused", "fail", "no answer; every pod on the node would wait")
        else:
            self.note("an unknown device is refused", "fail", "it was allocated")
        async with connect(endpoint.socket) as channel:
            client = Client(channel, _PLUGIN)
            for name, method, request in _BAD_REQUESTS:
                try:
                    with contextlib.suppress(PluginCallError):
                        await self.within_timeout(await_unary(client.call(method, request)))
                except TimeoutError:
                    self.note(name, "fail", "no answer")
        is_alive = not endpoint.is_stopped and resource in node.devices()
        self.note("continues after bad requests", "pass" if is_alive else "fail")

    async def _check_second_lists(self, node: Node, resources: Sequence[str]) -> None:
        """Open another stream of each resource: after the restarts, whose results must be those of a kubelet alone."""
        for self.group in resources:
            async with connect(node.endpoints()[self.group].socket) as channel:
                second = await self._check_second_list(Client(channel, _PLUGIN))
            detail = "" if second else "when it registers again, the kubelet opens another and waits for its list"
            self.note("a second ListAndWatch gets the list, too", "pass" if second else "fail", detail)

    async def _check_second_list(self, client: Client) -> bool:
        try:
            async with asyncio.timeout(self.seconds):
                async for _ in client.stream("ListAndWatch", api.Empty()):
                    return True
        except (TimeoutError, RpcError):
            pass
        return False

    async def _check_kubelet_restarts(self, node: Node, resources: Sequence[str]) -> bool:
        """Restart the kubelet; return whether the plugin came back."""
        self._since = ", which is a new socket since the kubelet restarted"
        before = _listed(node)
        for number in range(1, RESTARTS + 1):
            await node.restart()
            if not await self._check_registration(node, f"comes back after restart {number}", resources):
                return False
        same = before == _listed(node)
        self.note("offers the same devices", "pass" if same else "warn", "" if same else "the lists differ")
        return True

    async def _check_plugin_restarts(self, node: Node, process: PluginProcess, resources: Sequence[str]) -> bool:
        """Restart the plugin, after SIGTERM and SIGKILL, while a container has devices; return whether it came back."""
        self._since = " since the plugin was started again"
        names = {
            "restart of the plugin": "comes back after its restart",
            "crash of the plugin": "comes back after a crash",
        }
        if not self.has_plugin_restarts:
            for self.group, name in names.items():
                self.note(name, "skip", "left out, as requested")
            return True
        healthy = [resource for resource in resources if _healthy(node, resource)]
        held = healthy[0] if healthy else ""
        if held and (reason := await self._run_holder_pod(node, held)):
            self.note("a container with all devices", "fail", f"{reason}{self.reasons}")
            held = ""
        for is_crash, (self.group, name) in enumerate(names.items()):
            before, answer = _listed(node), node.plugin_responses(HOLDER, "c")[held] if held else None
            node.manager.server.offered.clear()  # it contains the registrations of the plugin before
            gone, folder = partial(_are_stopped, node), node.device_plugins
            if not await self.stop_plugin(node, process, name, folder, gone, is_crash=bool(is_crash)):
                return False
            if not node.kubelet_socket.exists():
                text = f"it has removed {node.kubelet_socket}; no plugin can register until the kubelet starts again"
                return self.note(name, "fail", text)
            await process.start()
            if not await self._check_registration(node, name, resources, healthy):
                return False
            self._check_lists_after_restart(before, _listed(node), held)
            if answer is not None:
                await node.remove(HOLDER)
                held = held if await self._check_repeated_allocation(node, held, answer) else ""
        remove_dead_sockets(node.device_plugins)
        if held:
            await node.remove(HOLDER)
        return True

    async def _run_holder_pod(self, node: Node, resource: str) -> str:
        """Run a container with all devices of a resource; return why it does not run, empty if it does."""
        wanted = pod(HOLDER, container("c", {resource: len(_healthy(node, resource))}), restart_policy="Never")
        try:
            status = await self.within_timeout(node.admit(wanted))
        except TimeoutError:
            return f"no answer after {self.seconds:.0f} s; no other pod is admitted meanwhile"
        if status.phase == "Running":
            return ""
        await node.remove(HOLDER)
        return _not_running_reason(status)

    def _check_lists_after_restart(
        self, before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]], held: str
    ) -> None:
        name = "offers the same devices"
        if lost := sorted(set(before.get(held, ())) - set(after.get(held, ()))):
            shown = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
            text = f"{held} no longer lists {shown}, which a container has: others can get the same hardware"
            self.note(name, "fail", text)
        else:
            self.note(name, "pass" if before == after else "warn", "" if before == after else "the lists differ")

    async def _check_repeated_allocation(
        self, node: Node, resource: str, before: api.ContainerAllocateResponse
    ) -> bool:
        """Allocate all devices again, and compare the CDI names: containers that restart use the answer from before."""
        name = "allocates the same devices again"
        if reason := await self._run_holder_pod(node, resource):
            return self.note(name, "fail", reason)
        answer = node.plugin_responses(HOLDER, "c")[resource]
        old, new = (sorted(cdi.name for cdi in each.cdi_devices) for each in (before, answer))
        text = f"other CDI names; a container that restarts uses those from before: {', '.join(old) or 'none'}"
        return self.note(name, "pass" if old == new else "warn", "" if old == new else text)

    async def _check_shutdown(self, node: Node, process: PluginProcess) -> None:
        if not await self.stop_and_check(process):
            return
        with contextlib.suppress(TimeoutError):
            await node.until(lambda: not any(node.allocatable().values()), self.seconds)
        offered = [resource for resource, count in node.allocatable().items() if count]
        self.note("offers nothing any more", "fail" if offered else "pass", ", ".join(offered))
        left = {path.name for path in node.device_plugins.iterdir() if path.is_socket()}
        is_there = node.kubelet_socket.name in left
        missing = "" if is_there else "no plugin can register until the kubelet starts again"
        self.note("leaves the kubelet its socket", "pass" if is_there else "fail", missing)
        left.discard(node.kubelet_socket.name)
        self.note("leaves no socket behind", "warn" if left else "pass", ", ".join(sorted(left)))


def _amounts(count: int, *, has_half: bool = True) -> dict[str, int]:
    """Return the amounts to request of `count` devices, by descriptions that do not depend on the count."""
    amounts = {"one device": 1}
    if has_half and 1 < (count + 1) // 2 < count:
        amounts["half of the devices"] = (count + 1) // 2
    if count > 1:
        amounts["all devices"] = count
    return amounts


def _response_problem(found: api.ContainerAllocateResponse) -> str:
    """Return the first fault in a response to Allocate that a runtime would refuse; empty if there is none."""
    wrong = [f"environment variable {name!r} cannot be set" for name in found.envs if not name or "=" in name]
    for device in found.devices:
        if not (device.host_path.startswith("/") and device.container_path.startswith("/")):
            wrong.append(f"device path {device.host_path!r} -> {device.container_path!r} is not absolute")
        if not device.permissions or set(device.permissions) - set("rwm"):
            wrong.append(f"permissions {device.permissions!r} of {device.container_path} are not of r, w and m")
    wrong += [
        f"mount {mount.host_path!r} -> {mount.container_path!r} is not absolute"
        for mount in found.mounts
        if not (mount.host_path.startswith("/") and mount.container_path.startswith("/"))
    ]
    wrong += [
        f"CDI name {cdi.name!r} is not vendor/class=name"
        for cdi in found.cdi_devices
        if not CDI_NAME.fullmatch(cdi.name)
    ]
    return wrong[0] if wrong else ""


def _evaluate_preferred(
    response: api.PreferredAllocationResponse, available: Sequence[str], must_include: Sequence[str], size: int
) -> tuple[Outcome, str]:
    """Return the outcome for a preference. An invalid one is a warning: the kubelet corrects it, so it is harmless."""
    if not response.container_responses:
        return "warn", "no preference"
    chosen = list(response.container_responses[0].deviceIDs)
    if len(set(chosen)) != len(chosen) or len(chosen) != size:
        return "warn", f"{len(set(chosen))} device(s) instead of {size}"
    if not set(chosen) <= set(available):
        return "warn", "names devices that were not offered"
    if not set(chosen) >= set(must_include):
        return "warn", "leaves out a device that is given"
    return "pass", ""


def _healthy(node: Node, resource: str) -> list[str]:
    return [id_ for id_, device in node.devices()[resource].items() if device.is_healthy]


def _not_running_reason(status: PodStatus) -> str:
    waiting = next((each.state.waiting for each in status.container_statuses), None)
    return status.message or (waiting.message if waiting is not None else "")


def _listed(node: Node) -> dict[str, list[str]]:
    return {resource: sorted(devices) for resource, devices in node.devices().items()}


def _has_only_stopped_plugin(node: Node, resource: str) -> bool:
    """Return whether a resource has only the registration of a plugin that was stopped."""
    return node.endpoints()[resource].is_stopped and resource not in node.manager.server.offered


def _are_stopped(node: Node) -> bool:
    return all(endpoint.is_stopped for endpoint in node.endpoints().values())


def _has_changed(node: Node, endpoints: Mapping[str, Endpoint]) -> bool:
    return node.endpoints() != endpoints
