"""Why a resource has no device. Pure.

The closest match decides: a selected device that another resource owns, a selected device that the resource cannot own,
a folder instead of a node, or a device of the right kind that is not selected. Otherwise no device of the kind exists.
"""

from hostdevices import Device, Inventory
from resources.assignment import Assignment
from resources.danger import DANGEROUS
from resources.presets import PRESETS
from resources.resource import Resource, Selector
from resources.selector import AllOf, AnyOf, Kinds, Paths, Preset, concerns, matched_conditions, path_globs

_MAX_NAMED = 2  # the most devices that are named
_DANGEROUS_KINDS = {
    kind
    for entry in PRESETS.values()
    if entry.is_dangerous and isinstance(entry.selector, Kinds)
    for kind in entry.selector.kinds
}
_MISSING_ATTRIBUTE = "it has no attribute"  # a device of another type; one with another value is nearer


def empty_reason(resource: Resource, inventory: Inventory, assignment: Assignment) -> str:
    """Return that `resource`, which has nothing in `assignment`, has no device here, and the nearest reason if any."""
    reason = _reason(resource, inventory, assignment)
    text = f"no device here: {reason}" if reason else "no device here"
    if not resource.dangerous and DANGEROUS not in text and _needs_dangerous(resource.selector):
        return f"{text}; it also needs {DANGEROUS}, without which no resource gets such devices"
    return text


def _reason(resource: Resource, inventory: Inventory, assignment: Assignment) -> str:
    devices = [x for x in inventory.devices.values() if concerns(resource.selector, x.kind)]
    selected = [x for x in devices if not resource.selector.mismatch(x)]
    refused = {x.id: why for x in selected if (why := assignment.refusals.get(x.id, {}).get(resource.name))}
    if taken := [x for x in selected if x.id in assignment.owners and x.id not in refused]:
        first = assignment.owners[taken[0].id]
        return f"{_named(taken)} belongs to {first}, which is earlier in the file" if first != resource.name else ""
    if refused:
        first = next(iter(refused))
        return f"{first}: {refused[first]}{_more(len(selected) - 1)}"
    reasons = {x.device.id: x.reason for x in assignment.rest}
    if selected:
        return f"{selected[0].id}: {reasons.get(selected[0].id, 'it may not have it')}{_more(len(selected) - 1)}"
    if folder := _matched_folder(resource, inventory):
        return f"{folder} is a folder; `group: {{folder: {folder}}}` allocates all nodes in it as one device"
    if isinstance(resource.selector, Paths):
        return f"no device node matches {' or '.join(resource.selector.globs)}"
    if path_globs(resource.selector):  # a path concerns every kind: other devices' reasons mean nothing
        return ""
    if not devices:
        kinds = sorted(kind for kind in _kinds(resource.selector) if concerns(resource.selector, kind))
        return f"no device of kind {' or '.join(kinds)} exists" if kinds else ""

    def nearness(device: Device) -> tuple[int, bool]:
        is_unlike = resource.selector.mismatch(device).startswith(_MISSING_ATTRIBUTE)
        return matched_conditions(resource.selector, device), not is_unlike

    near = max(devices, key=nearness)
    return f"{near.id}: {resource.selector.mismatch(near)}{_more(len(devices) - 1)}"


def _kinds(selector: Selector) -> set[str]:
    """Return the kinds of devices that a selector names, also those that its other parts exclude."""
    match selector:
        case Kinds(kinds):
            return set(kinds)
        case Preset(_, inner):
            return _kinds(inner)
        case AllOf(selectors) | AnyOf(selectors):
            return set().union(*map(_kinds, selectors))
    return set()


def _needs_dangerous(selector: Selector) -> bool:
    """Return whether everything that a selector can select is dangerous, as far as presets and kinds determine it."""
    match selector:
        case Preset(name, inner):
            return PRESETS[name].is_dangerous if name in PRESETS else _needs_dangerous(inner)
        case Kinds(kinds):
            return _DANGEROUS_KINDS.issuperset(kinds)
        case AllOf(selectors):
            return any(map(_needs_dangerous, selectors))
        case AnyOf(selectors):
            return all(map(_needs_dangerous, selectors))
    return False


def _named(devices: list[Device]) -> str:
    shown = ", ".join(x.id for x in devices[:_MAX_NAMED])
    return shown + _more(len(devices) - _MAX_NAMED)


def _more(count: int) -> str:
    return f" (and {count} more)" if count > 0 else ""


def _matched_folder(resource: Resource, inventory: Inventory) -> str:
    nodes = [node.path for device in inventory.devices.values() for node in device.devnodes]
    globs = (glob.rstrip("/") for glob in path_globs(resource.selector))
    return next((glob for glob in globs if any(node.startswith(f"{glob}/") for node in nodes)), "")
