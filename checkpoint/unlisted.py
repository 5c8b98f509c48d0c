"""Units of pods that still run although the kubelet has forgotten them, after a deletion by force.

The kubelet and the scheduler take such a unit for free, and the guard refuses it. The device plugin API therefore lists
it as unhealthy: otherwise each pod that the scheduler places here could fail, in a loop of its controller.

Rules:
1. A unit is unlisted once one kubelet has listed its pod, and later lists other pods but neither this pod nor the unit,
   while the pod has processes. A witness that does not answer shows nothing. After a refusal a pass begins soon.
   A listed pod with the same name counts as another pod if it has units and another uid: a StatefulSet creates it.
2. It stays so until its pod has no process, its lease ends or passes to another pod, or the kubelet names the unit
   again. A kubelet that starts does not change that: such a pod does not come back. A daemon that starts does not know
   what the kubelet listed before, so the program records the unlisted units on disk. If the pod was deleted while no
   daemon ran, the unit counts as listed; the guard still refuses it.
3. A pod that the kubelet lists without its unit is another case: the kubelet has lost its file. Its unit stays healthy.
   The scheduler counts the pod, so an unhealthy unit would cost another one, and a kubelet that starts would end the
   pod, for which it finds neither a record nor enough healthy units (`OutOf...`, observed with 1.37). The same applies
   to a pod that a starting kubelet has not listed yet, hence the order in rule 1. For new pods there are enough other
   units, which the device plugin API prefers.
4. A static pod's unit is never unlisted: the kubelet admits its next version while it ends, and never tries again.

After any other deletion a kubelet lists the pod until its processes have ended (1.37: for 0.1 s more).
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, TypeAlias

from checkpoint.holdings import Holdings, Listed
from checkpoint.lease import Lease, LeaseKey

MAX_NAMED: Final = 5
"""The most pods, or units, that a text names."""
_STATIC_POD = re.compile(r"[0-9a-f]{32}")  # its uid is a digest of its manifest, without dashes
_HINT = (
    "if the pod was deleted by force, wait until its processes have ended, or end them; otherwise delete the pod: the"
    " kubelet has lost its kubelet_internal_checkpoint"
)

Observer: TypeAlias = Callable[[Sequence[Lease]], None]


class Unlisted:
    """The unlisted units of a ledger; belongs to its event loop."""

    def __init__(self) -> None:
        """Start empty."""
        self._leases: dict[LeaseKey, Lease] = {}
        self._observers: list[Observer] = []
        self._is_any = asyncio.Event()

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases of all unlisted units, as of when they were found."""
        return tuple(self._leases.values())

    async def wait_any(self) -> None:
        """Wait until a unit is unlisted."""
        await self._is_any.wait()

    def observe(self, changed: Observer) -> None:
        """Call `changed` with the leases of units that are unlisted from now on, or no longer."""
        self._observers.append(changed)

    def add(self, leases: Iterable[Lease]) -> None:
        """Record units as unlisted."""
        new = [x for x in leases if x.key not in self._leases]
        self._leases.update((x.key, x) for x in new)
        self._notify(new)

    def remove(self, leases: Iterable[Lease]) -> None:
        """Record units as not unlisted any more."""
        self._notify([x for x in leases if self._leases.pop(x.key, None) is not None])

    def _notify(self, leases: Sequence[Lease]) -> None:
        if self._leases:
            self._is_any.set()
        else:
            self._is_any.clear()
        for observer in self._observers if leases else ():
            observer(leases)


class ListedPods:
    """The pods that the present kubelet has listed at any time."""

    def __init__(self) -> None:
        """Start without any."""
        self._kubelet: object = None
        self._pods: Set[str] = frozenset()

    def forgotten_units(self, leases: Sequence[Lease], holdings: Holdings) -> list[Lease]:
        """Return the leases of protected units of pods that the kubelet has forgotten."""
        pods = self._forgotten_pods(holdings.listed, {pod_of(lease) for lease in leases})
        uids = _uids_of_listed(leases, holdings)

        def is_forgotten(lease: Lease) -> bool:
            pod = pod_of(lease)
            return pod in pods or (pod in uids and uids[pod].isdisjoint(lease.pods))

        return [x for x in leases if is_forgotten(x) and is_protected(x) and not holdings.names(x)]

    def _forgotten_pods(self, listed: Listed | None, pods: Set[str]) -> Set[str]:
        """Return which pods the kubelet listed before and lists no longer; none if it does not answer.

        Others than these `pods`, which have leases, are not remembered.
        """
        if listed is None or not listed.knows_its_pods:
            return frozenset()
        before = self._pods if self._kubelet == listed.kubelet else frozenset[str]()
        self._kubelet, self._pods = listed.kubelet, (before | listed.pods) & pods
        return before - listed.pods


def is_protected(lease: Lease) -> bool:
    """Return whether a unit is kept from other pods while its pods run: unless all that are known are static."""
    return lease.api == "device-plugin" and not all(map(_STATIC_POD.fullmatch, lease.pods))


def pod_of(lease: Lease) -> str:
    """Return the namespace and name of a unit's pod; empty if they are not known."""
    match lease.holder.split("/"):
        case ["pod", namespace, name, _]:
            return f"{namespace}/{name}"
    return ""


def is_of_same_pod(now: Lease | None, lease: Lease) -> bool:
    """Return whether the unit of `lease` still has a lease of the same pod."""
    return now is not None and not now.pods.isdisjoint(lease.pods)


def unlisted_reason(lease: Lease) -> str:
    """Return in words which pod keeps a unit, and what to do."""
    return (
        f"pod {_pod(lease)} still runs with {lease.unit}, although the kubelet does not list this pod any more: it was"
        " deleted by force; wait until its processes have ended, or end them"
    )


def running_pods_refusal(leases: Sequence[Lease]) -> str:
    """Return the refusal of units that running pods have, in words."""
    units = _bounded([x.unit for x in leases])
    devices, it = ("device", "it") if len(leases) == 1 else ("devices", "them")
    pods = dict.fromkeys(map(_pod, leases))
    who = f"pod {next(iter(pods))} still runs" if len(pods) == 1 else f"pods {_bounded([*pods])} still run"
    return f"{devices} {units}: {who} with {it}, although the kubelet requests {it} again; {_HINT}"


def _pod(lease: Lease) -> str:
    return pod_of(lease) or f"with the uid {min(lease.pods)}"


def _bounded(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _uids_of_listed(leases: Iterable[Lease], holdings: Holdings) -> Mapping[str, Set[str]]:
    """Return the uids of the pods that the kubelet lists with units, by namespace and name."""
    found: dict[str, Set[str]] = {}
    for lease in leases:
        if lease.pods and lease.holder and lease.holder == holdings.holder_of(lease):
            found[pod_of(lease)] = found.get(pod_of(lease), frozenset()) | lease.pods
    return found
