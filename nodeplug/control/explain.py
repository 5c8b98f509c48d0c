"""`explain`: why a resource, or none, has a device; which devices a resource has, and what is missing.

Rules and reasons are those of the assignment, computed again for the request. Each resource is named with its line in
the file that the daemon has read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from checkpoint.withheld import withheld_reason
from hostdevices import Device, Inventory
from hostdevices.threads import in_thread
from nodeplug.config import Config
from nodeplug.config.document import suggestion
from nodeplug.config.source_lines import SourceLines, source_lines
from nodeplug.control.leases import LeaseView, view
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon
from nodeplug.control.status import DeviceView, ResourceView, devices, resources
from resources.assignment import Assignment, assign
from resources.resource import Resource
from resources.selector import Selection, concerns, describe
from resources.shares import shares_of

_MAX_NEAR = 20  # the most devices that are listed although the resource does not have them


class Question(Struct, frozen=True, tag_field="question", tag="explain"):
    """Why is this device (its id, a node, the kernel's name) or resource in its present state?"""

    name: str


class Rule(Struct, frozen=True, rename="camel"):
    """A resource that could have the device: its place in the file, its selector, and the outcome for the device."""

    resource: str
    place: str  # file:line
    means: str
    outcome: str
    is_owner: bool = False


class Near(Struct, frozen=True):
    """A device that a resource does not have, though it is of a kind that the resource can select."""

    device: str
    reason: str


class Answer(Struct, frozen=True, rename="camel"):
    """The explanation of a device (with `rules`) or of a resource (with `near`).

    `missing` are the reasons why no pod can get it now; empty if there are none.
    """

    name: str
    is_device: bool
    summary: str
    missing: tuple[str, ...]
    rules: tuple[Rule, ...]
    near: tuple[Near, ...]
    resources: tuple[ResourceView, ...]
    devices: tuple[DeviceView, ...]
    leases: tuple[LeaseView, ...]


class Facts(Struct):
    """The host's devices and their owners by the configuration, at one moment."""

    config: Config
    inventory: Inventory
    assignment: Assignment
    source_lines: Mapping[str, SourceLines]
    source: str

    def place(self, resource: str) -> str:
        """Return the place of a resource's selector; empty without a file."""
        place = self.source_lines.get(resource)
        return f"{self.source}:{place.select_line}" if place else ""

    def all_devices(self) -> dict[str, Device]:
        """Return all devices by id; offered ones in the form in which they are offered."""
        return {**self.inventory.devices, **{x.id: x for each in self.assignment.devices.values() for x in each}}


async def facts_of(running: RunningDaemon) -> Facts:
    """Return the facts of this moment. Raises `Refusal` before the first scan."""
    inventory, config = running.offering.inventory, running.offering.config
    if inventory is None:
        raise Refusal("the devices of this node are not read yet; try again")
    content = running.file.content if running.file is not None else b""
    assignment, found = await in_thread(lambda: (assign(inventory, config.resources), source_lines(content)))
    return Facts(config, inventory, assignment, found, str(running.file.path) if running.file else config.source)


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `explain`. Raises `Refusal` if the name is neither a device nor a resource here."""
    facts = await facts_of(running)
    config, inventory = facts.config, facts.inventory
    resource = next((x for x in config.resources if x.name == question.name), None)
    if resource is not None:
        return _of_resource(running, facts, resource)
    device = find(facts, question.name)
    if device is not None:
        return _of_device(running, facts, device)
    held = _leases(running, lambda x: x.resource == question.name)
    missing = tuple(_not_on_node_reasons(facts, question.name))
    if held or missing:
        place = f"is in the configuration ({facts.place(question.name)})"
        summary = place if missing else "is not in the configuration any more"
        summary += "; it is served until the pods that have its devices end" if held else ""
        states = _devices(running, question.name, None)
        return Answer(question.name, False, summary, missing, (), (), (), states, held)
    names = [*(x.name for x in config.resources), *inventory.devices]
    hint = suggestion(question.name, names) or "`nodeplug discover` lists the devices"
    raise Refusal(f"there is no device or resource {question.name} here; {hint}")


def _not_on_node_reasons(facts: Facts, resource: str) -> Iterator[str]:
    """Yield why a resource of the file is not offered on this node; nothing if the file has no such resource."""
    if resource in facts.config.waiting:
        yield "its nodeSelector needs the labels of this node, which are not known yet"
    elif resource in facts.config.elsewhere:
        yield "it is for other nodes (`onNodes` or `nodeSelector`)"


def find(facts: Facts, name: str) -> Device | None:
    """Return the device with this id, in the form in which it is offered; or the one with this node or kernel name."""
    all_devices = facts.all_devices()
    if name in all_devices:
        return all_devices[name]
    by_node = (x for x in all_devices.values() if any(name in (node.path, node.target) for node in x.devnodes))
    by_name = (x for x in all_devices.values() if x.name == name)
    return next(chain(by_node, by_name), None)


def _of_device(running: RunningDaemon, facts: Facts, device: Device) -> Answer:
    owner = facts.assignment.owners.get(device.id, "")
    whole = next((x for x in facts.assignment.devices.get(owner, ()) if device.id in x.ids), None)
    states = _devices(running, owner, whole.id if whole else device.id) if owner else ()
    views = tuple(x for x in resources(running) if x.name == owner)
    held = _leases(running, lambda x: bool({device.id, whole.id if whole else ""} & {*x.devices, *x.shared}))
    missing: list[str] = []
    if owner:
        summary = f"is offered by {owner} ({facts.place(owner)})"
        if whole is not None and whole.id != device.id:
            summary += f", as a part of {whole.id}"
        missing += [f"{x.api}: {x.health}: {x.reason}" for x in states if x.health != "healthy"]
        missing += _unregistered(views)
        resource = next(x for x in facts.config.resources if x.name == owner)
        missing += _all_leased(states, _leased_in(facts, resource))
        missing += [] if states else ["it is not on the list yet"]
    else:
        rest = next((x for x in facts.assignment.rest if x.device.id == device.id), None)
        summary = "is not offered"
        missing.append(rest.reason if rest else "it is offered only as a part of another device")
        if words := withheld_reason(device.id, device.ids.union(device.parents), running.ledger.withheld):
            missing.append(f"and it is {words}")
    rules = tuple(_rules(facts, device, owner))
    return Answer(device.id, True, summary, tuple(missing), rules, (), views, states, held)


def _rules(facts: Facts, device: Device, owner: str) -> Iterator[Rule]:
    """Yield the resources that can select devices of this kind, in the order of the configuration."""
    seen = facts.inventory.devices.get(device.id, device)
    comes_after = False
    for resource in facts.config.resources:
        is_owner = resource.name == owner
        if not is_owner and not concerns(resource.selector, seen.kind):
            continue
        reason = resource.selector.mismatch(seen)
        if is_owner:
            outcome = "selects it, and is the first that can own it" if not reason else "has it, with another device"
        elif reason:
            outcome = f"does not select it: {reason}"
        elif comes_after:
            outcome = f"selects it, and {owner} comes first"
        elif why := facts.assignment.refusals.get(device.id, {}).get(resource.name):
            outcome = f"selects it, and cannot own it: {why}"
        else:
            outcome = "selects it, and cannot own it"
        comes_after = comes_after or is_owner
        yield Rule(resource.name, facts.place(resource.name), _selector_in_words(resource), outcome, is_owner)


def _of_resource(running: RunningDaemon, facts: Facts, resource: Resource) -> Answer:
    states, views = (
        _devices(running, resource.name, None),
        tuple(x for x in resources(running) if x.name == resource.name),
    )
    missing, is_leased = list(_unregistered(views)), _leased_in(facts, resource)
    if not facts.assignment.devices[resource.name]:
        meant = sum(not resource.selector.mismatch(x) for x in facts.inventory.devices.values())
        several = (
            f"{meant} device{'s' * (meant > 1)} here would match its selector, and it cannot own any of them: see below"
        )
        missing.append(several if meant else "it selects no device here")
    elif states and all(x.health != "healthy" for x in states):
        missing.append("none of its devices is healthy and free")
    elif all_leased := _all_leased(states, is_leased):
        missing += all_leased
    elif states and not any(x.health == "healthy" and not is_leased(x) for x in states):
        missing.append("none of its devices is healthy and free")
    summary = f"selects {_selector_in_words(resource)} ({facts.place(resource.name)}), through {resource.api}"
    near = tuple(_near(facts, resource))
    held = _leases(running, lambda x: x.resource == resource.name)
    return Answer(resource.name, False, summary, tuple(missing), (), near, views, states, held)


def _near(facts: Facts, resource: Resource) -> Iterator[Near]:
    """Yield devices of the resource's kinds that it does not have: first those that it selects."""
    others = [x for x in facts.inventory.devices.values() if facts.assignment.owners.get(x.id) != resource.name]
    others = [x for x in others if concerns(resource.selector, x.kind)]
    others.sort(key=lambda x: (bool(resource.selector.mismatch(x)), x.id in facts.assignment.owners, x.id))
    refused = {x.device.id: x.reason for x in facts.assignment.rest}
    for device in others[:_MAX_NEAR]:
        owner = facts.assignment.owners.get(device.id)
        mine = facts.assignment.refusals.get(device.id, {}).get(resource.name, "")
        reason = resource.selector.mismatch(device) or mine
        reason = reason or (f"{owner} has it" if owner else refused.get(device.id, ""))
        yield Near(device.id, reason)


def _selector_in_words(resource: Resource) -> str:
    selector = resource.selector
    return describe(selector) if isinstance(selector, Selection) else "devices of another kind"


def _unregistered(views: Sequence[ResourceView]) -> Iterator[str]:
    for x in views:
        if not x.is_registered:
            yield f"{x.name} is not registered with the kubelet ({x.api})" + (
                f": {x.last_error}" if x.last_error else ""
            )


def _all_leased(states: Sequence[DeviceView], is_leased: Callable[[DeviceView], bool]) -> list[str]:
    leased = {x.id for x in states if is_leased(x)}
    is_all = bool(states) and leased == {x.id for x in states}  # through one API or the other
    return ["all of it is leased"] if is_all else []


def _leased_in(facts: Facts, resource: Resource) -> Callable[[DeviceView], bool]:
    """Return a function that returns whether all shares of a device of a resource are leased."""
    shares = {x.id: shares_of(resource, x).count for x in facts.assignment.devices.get(resource.name, ())}
    return lambda x: x.leased >= shares.get(x.id, resource.shares)


def _devices(running: RunningDaemon, resource: str, device: str | None) -> tuple[DeviceView, ...]:
    return tuple(x for x in devices(running) if x.resource == resource and device in (None, x.id))


def _leases(running: RunningDaemon, is_selected: Callable[[LeaseView], bool]) -> tuple[LeaseView, ...]:
    return tuple(x for x in map(view, running.ledger.leases()) if is_selected(x))
