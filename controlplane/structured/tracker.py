"""ResourceSlices for the allocator, with the taints that DeviceTaintRules put on devices.

A rule without a selector taints nothing; one with an empty selector taints everything. A device has to meet all
criteria of a selector. The rules' taints follow the device's own, ordered by rule name. Upstream:
`resourceslice/tracker`.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from controlplane.structured.identity import DeviceID
from resourceapi.objects.v1 import Device, DeviceTaintRule, ResourceSlice, ResourceSliceSpec

OnChange = Callable[[ResourceSlice | None, ResourceSlice | None], object]
"""Called with a patched slice before (None: new) and after (None: deleted) the change: at each write of the slice, as
upstream does, and when a rule changed its taints."""


def patched(slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]) -> list[ResourceSlice]:
    """Return the slices in their order, with the taints of the rules. Slices without such taints are not copied."""
    in_order = sorted(rules, key=_name)
    return [_patched(each, in_order) for each in slices]


def selects(rule: DeviceTaintRule, device: DeviceID) -> bool:
    """Return whether a rule taints a device, whether or not a slice has the device."""
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, device.driver)
        and selector.pool in (None, device.pool)
        and selector.device in (None, device.device)
    )


class Tracker:
    """Keeps patched slices up to date with every event; events of different objects can come in any order.

    Upstream has this interface for schedulers that receive events. On an event, every affected slice is patched again.
    """

    def __init__(self, on_change: OnChange = lambda *_: None) -> None:
        self._on_change = on_change
        self._slices: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._patched: dict[str, ResourceSlice] = {}

    @property
    def slices(self) -> list[ResourceSlice]:
        """The patched slices by name."""
        return sorted(self._patched.values(), key=_name)

    def set_slice(self, new: ResourceSlice) -> None:
        """Record a created or changed slice."""
        self._slices[new.metadata.name] = new
        self._update((new.metadata.name,), is_written=True)

    def remove_slice(self, name: str) -> None:
        """Record that a slice is deleted."""
        self._slices.pop(name, None)
        self._update((name,))

    def set_rule(self, new: DeviceTaintRule) -> None:
        """Record a created or changed rule."""
        self._rules[new.metadata.name] = new
        self._update(sorted(self._slices))

    def remove_rule(self, name: str) -> None:
        """Record that a rule is deleted."""
        self._rules.pop(name, None)
        self._update(sorted(self._slices))

    def _update(self, names: Sequence[str], *, is_written: bool = False) -> None:
        """Patch some slices again and report what changed."""
        rules = sorted(self._rules.values(), key=_name)
        for name in names:
            before, stored = self._patched.pop(name, None), self._slices.get(name)
            after = None if stored is None else _patched(stored, rules)
            if after is not None:
                self._patched[name] = after
            if is_written or (before is not after and before != after):
                self._on_change(before, after)


def _patched(stored: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    spec = stored.spec
    matching = [rule for rule in rules if _applies_to(rule, spec)]
    if not matching:
        return stored
    devices = tuple(_tainted(device, spec, matching) for device in spec.devices)
    return stored if devices == spec.devices else replace(stored, spec=replace(spec, devices=devices))


def _applies_to(rule: DeviceTaintRule, spec: ResourceSliceSpec) -> bool:
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, spec.driver)
        and selector.pool in (None, spec.pool.name)
        and bool(spec.devices)
    )


def _tainted(device: Device, spec: ResourceSliceSpec, rules: Sequence[DeviceTaintRule]) -> Device:
    id_ = DeviceID(spec.driver, spec.pool.name, device.name)
    more = tuple(rule.spec.taint for rule in rules if selects(rule, id_))
    return replace(device, taints=(*device.taints, *more)) if more else device


def _name(each: ResourceSlice | DeviceTaintRule) -> str:
    return each.metadata.name
