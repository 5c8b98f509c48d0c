"""The state of GPUs from the library's reports, which stays while it does not answer: attributes and faults.

Rules:
1. The last state stays while there is no report: a hanging library removes no GPU's name or fault, and neither does a
   lost GPU.
2. An XID that is not an application's fault stays until the GPU is gone from the host, or the driver changes. For a
   reset every program must close the GPU, also this one, which then starts again.
3. The growth of ECC errors within a minute counts, as for any device (hostdevices/health.py).
4. GPUs that NVLink joins are one hive, like AMD's with xGMI: a container gets GPUs of one hive, if possible, and those
   with the most links between them (deviceplugin/preferred.py).
"""

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import TypeVar

from msgspec import Struct, structs

from hostdevices import HEALTHY, Device, Health, Inventory
from hostdevices.device import PCI_BUS_ID, AttributeValue
from hostdevices.health import HealthHistory, next_health
from hostdevices.readers.signals import ErrorCounter, Signals
from nvml.report import SWITCH, Gpu, Instance, Report, Xid

T = TypeVar("T")
_MAX_XIDS = 16  # different ones that are stored for a GPU
_MEMORY_ERRORS = ErrorCounter("uncorrectable memory errors", 0)


class GpuStates(Struct, frozen=True):
    """An immutable state, from which later ones are derived."""

    gpus: Mapping[str, Gpu] = {}
    histories: Mapping[str, HealthHistory] = {}
    xids: Mapping[str, tuple[Xid, ...]] = {}

    def reported(self, report: Report, now: float) -> "GpuStates":
        """Return the state after a report; `now` in seconds of a monotonic clock.

        GPUs missing in the report stay known.
        """
        gpus, histories = dict(self.gpus), dict(self.histories)
        for gpu in report.gpus:
            gpus[gpu.address] = self.gpus.get(gpu.address, gpu) if gpu.is_lost else gpu
            counters = {} if gpu.uncorrected is None else {_MEMORY_ERRORS: gpu.uncorrected}
            before = histories.get(gpu.address) or HealthHistory(gpu.address)
            histories[gpu.address] = next_health(before, Signals({x: x for x in gpu.faults}, counters), now)
        return structs.replace(self, gpus=gpus, histories=histories)

    def failed(self, event: Xid, ignored: Collection[int]) -> "GpuStates":
        """Return the state after an error that the driver has reported."""
        known = self.xids.get(event.address, ())
        if event.number in ignored or event in known:
            return self
        return structs.replace(self, xids={**self.xids, event.address: (*known, event)[-_MAX_XIDS:]})

    def only(self, addresses: Collection[str]) -> "GpuStates":
        """Return the state of only these GPUs."""
        if self.gpus.keys() <= set(addresses):
            return self
        return GpuStates(
            _selected(self.gpus, addresses), _selected(self.histories, addresses), _selected(self.xids, addresses)
        )

    def added_to(self, inventory: Inventory) -> Inventory:
        """Return the inventory, with what is known of its GPUs."""
        found: dict[str, Device] = {}
        links = _links(self.gpus)
        hives = _hives(links)
        for device in gpus_in(inventory):
            if (gpu := self.gpus.get(str(device.attributes[PCI_BUS_ID]))) is not None:
                found[device.id] = self._with(device, gpu, links[gpu.address], hives.get(gpu.address, ""))
        return Inventory({**inventory.devices, **found}, inventory.problems) if found else inventory

    def _with(self, device: Device, gpu: Gpu, joined: Mapping[str, int], hive: str) -> Device:
        attributes = dict(device.attributes)
        links = device.links
        if device.attributes.get("type") == "mig":
            numbers = (device.attributes.get("gpuInstance"), device.attributes.get("computeInstance"))
            instance = next((x for x in gpu.instances if (x.gpu_instance, x.compute_instance) == numbers), None)
            attributes |= _instance_attributes(instance) if instance else {}
            attributes |= {"parentUUID": gpu.uuid} if gpu.uuid else {}
        else:
            numbers = (None, None)
            attributes |= _nonempty({"uuid": gpu.uuid, "memory": gpu.memory, "hive": hive, "partitioned": gpu.is_mig})
            links = tuple(sorted(joined.items()))
        reasons = [*self._xid_reasons(gpu.address, numbers)]
        if (health := self.histories[gpu.address].health) != HEALTHY:
            reasons.append(health.reason)
        if device.health.healthy and reasons:
            device = structs.replace(device, health=Health(False, "; ".join(reasons)))
        return structs.replace(device, attributes=attributes, links=links)

    def _xid_reasons(self, address: str, numbers: tuple[AttributeValue | None, AttributeValue | None]) -> list[str]:
        """Return the errors that concern a GPU or an instance: its own, its GPU instance's, and the whole GPU's."""
        gpu_instance, compute_instance = numbers
        concerned = [
            x.number
            for x in self.xids.get(address, ())
            if gpu_instance is None
            or (
                x.gpu_instance in (None, gpu_instance)
                and (x.compute_instance is None or x.compute_instance == compute_instance)
            )
        ]
        return [f"its driver has reported XID {number}" for number in dict.fromkeys(concerned)]


def _links(gpus: Mapping[str, Gpu]) -> dict[str, dict[str, int]]:
    """Return how many NVLink links join which GPUs: the larger of both direct counts, and links through switches."""
    found: dict[str, dict[str, int]] = {address: {} for address in gpus}
    for (one, first), (other, second) in combinations(gpus.items(), 2):
        direct = max(first.links.get(other, 0), second.links.get(one, 0))
        if count := direct + min(first.links.get(SWITCH, 0), second.links.get(SWITCH, 0)):
            found[one][other] = found[other][one] = count
    return found


def _hives(links: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Return the groups of GPUs that NVLink joins, directly or through others: for each GPU the first one's address.

    A GPU without such links has no hive.
    """
    hives: dict[str, str] = {}
    for first in sorted(links):
        if first in hives:
            continue
        group, pending = {first}, [first]
        while pending:
            new = links[pending.pop()].keys() - group
            group |= new
            pending += new
        hives |= dict.fromkeys(group, first) if len(group) > 1 else {}
    return hives


def _selected(values: Mapping[str, T], addresses: Collection[str]) -> dict[str, T]:
    return {address: value for address, value in values.items() if address in addresses}


def gpus_in(inventory: Inventory) -> list[Device]:
    """Return the GPUs and MIG instances that NVIDIA's driver has."""
    return [
        x
        for x in inventory.devices.values()
        if x.kind == "gpu" and x.attributes.get("driver") == "nvidia" and PCI_BUS_ID in x.attributes
    ]


def _instance_attributes(instance: Instance) -> dict[str, AttributeValue]:
    start, size = instance.placement or (0, 0)
    placement = f"{start}:{size}" if instance.placement else ""
    return _nonempty(
        {"uuid": instance.uuid, "profile": instance.profile, "memory": instance.memory, "placement": placement}
    )


def _nonempty(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value}
