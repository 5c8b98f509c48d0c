"""The node as a transition system: the possible actions in a state, and their results.

Two devices and three holders (pods 0 and 1 of the device plugin API, claim 2) with one life each. Pod 1 has its unit
in a plain init container, which pod-resources omits. A run has at most one crash of the daemon, one restart of the
kubelet and one change of the configuration. The rules of checkpoint/lease.py, holdings.py and reconciler.py are
implemented a second time, without their code.

Time has two values: within the reconciler's grace, and after it. The kubelet records an answer within the grace, or is
frozen once, for no longer than the grace.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias

Unit: TypeAlias = tuple[str, str]  # resource and name; `claims` for DRA
CLAIM = 2
CLAIMS = "claims"

Configuration = Literal["both", "plugin", "claims", "renamed", "shares", "names"]
CONFIGURATIONS: tuple[Configuration, ...] = ("both", "plugin", "claims", "renamed", "shares", "names")


class Offered(NamedTuple):
    """A unit of the device plugin API and its device. Units with the same owner do not exclude each other."""

    unit: Unit
    device: int
    owner: str


def offered(configuration: Configuration) -> tuple[Offered, ...]:
    """The units of the device plugin API."""
    if configuration == "claims":
        return ()
    resource = "gpu-renamed" if configuration == "renamed" else "gpu"
    if configuration == "shares":
        return tuple(
            Offered((resource, f"d{device}.{n}"), device, f"{resource}=d{device}/2")
            for device in range(2)
            for n in range(2)
        )
    name = "n" if configuration == "names" else "d"
    return tuple(Offered((resource, f"{name}{x}"), x, f"{resource}={name}{x}") for x in range(2))


CLAIM_UNITS: tuple[Unit, ...] = ((CLAIMS, "d0"), (CLAIMS, "d1"))
OFFERED = {x: offered(x) for x in CONFIGURATIONS}
BY_UNIT = {x.unit: x for each in OFFERED.values() for x in each}

Phase = Literal["new", "answered", "frozen", "runs", "lingers", "over", "undone"]
"""The phase of a holder.

`answered`: its lease is on disk, but the kubelet has not recorded the answer; `frozen`: for longer than the grace.
`lingers`: no container runs, but its cgroup exists. `over`: the cgroup is gone. `undone`: the kubelet has no record of
the claim any more.
"""


class Lease(NamedTuple):
    """A lease on disk; `is_named` once its holder is known."""

    unit: Unit
    device: int
    owner: str
    is_named: bool
    pods: frozenset[int]


class State(NamedTuple):
    """The node, and the daemon's memory."""

    configuration: Configuration
    has_cgroups: bool = True
    next: tuple[Configuration, ...] = ()  # the configuration that can replace it, once
    crashes: int = 0  # that are left
    restarts: int = 0
    is_up: bool = True
    kubelet: Literal["down", "starting", "up"] = "up"
    phases: tuple[Phase, ...] = ("new", "new", "new")
    units: tuple[Unit, ...] = (("", ""), ("", ""), ("", ""))
    on_server: bool = True  # the claim object exists
    memory: frozenset[int] = frozenset()  # pods whose units the kubelet knows
    file: frozenset[int] = frozenset()  # pods whose units are in its file
    leases: frozenset[Lease] = frozenset()
    young: frozenset[Unit] = frozenset()  # leases that were granted within the grace
    alive: frozenset[int] = frozenset()  # pods of leases whose cgroups the daemon has seen
    ended: frozenset[int] = frozenset()  # pods whose cgroups the daemon has seen disappear
    missed: frozenset[Unit] = frozenset()  # leases that were missed once
    missed_long: frozenset[Unit] = frozenset()  # those missed longer ago than the grace
    named: frozenset[Unit] = frozenset()  # leases that a witness has named


Action: TypeAlias = tuple[str | int, ...]
"""The action, its subjects, and its result."""


def device_of(unit: Unit) -> int:
    """The device of a unit."""
    return int(unit[1][1]) if unit[0] == CLAIMS else BY_UNIT[unit].device


def bounds(state: State) -> tuple[int, int, int]:
    """The remaining crashes, restarts of the kubelet and changes of the configuration."""
    return state.crashes, state.restarts, len(state.next[:1])


def unbound(state: State) -> State:
    """The state without its bounds. States that differ only in their bounds have otherwise the same actions."""
    return state._replace(crashes=0, restarts=0, next=())


def daemon_view(state: State) -> State:
    """The daemon's possible knowledge and memory in a state.

    It learns about pods from the kubelet's lists and files and from cgroups. A configuration affects only the kubelet's
    calls, which are part of the action.
    """
    known = state.memory | state.file
    phases: tuple[Phase, ...] = tuple(
        x if i == CLAIM or x in ("runs", "lingers") else "over" for i, x in enumerate(state.phases)
    )
    units = tuple(x if i == CLAIM or i in known else ("", "") for i, x in enumerate(state.units))
    return unbound(state)._replace(configuration="both", phases=phases, units=units)


def is_daemon_step(action: Action) -> bool:
    """Return whether the daemon does the action; all others happen around it."""
    return action[0] in ("allocate", "prepare", "unprepare", "look", "crash") or action == ("start",)


def violation(state: State) -> str:
    """The error of a state: two holders, a holder without a lease, or a lease without a holder; "" if it is correct."""
    holders = [i for i, phase in enumerate(state.phases) if phase in ("answered", "frozen", "runs")]
    owners = {x.unit: x.owner for x in state.leases}
    for holder in holders:
        if state.units[holder] not in owners:
            return f"{holder} has {state.units[holder]} without a lease"
    for one, other in combinations(holders, 2):
        units = state.units[one], state.units[other]
        are_shares = units[0] != units[1] and owners[units[0]] == owners[units[1]]
        if device_of(units[0]) == device_of(units[1]) and not are_shares:
            return f"{one} and {other} have {units}"
    if _all_holders_are_gone(state):
        for _ in range(3):
            state = reconciled(_after_the_grace(state))
        if state.leases:
            return f"{state.leases} do not end"
    return ""


def _all_holders_are_gone(state: State) -> bool:
    """Return whether all holders are gone, and all witnesses can answer."""
    *pods, claim = state.phases
    is_over = {*pods} <= {"new", "over"} and (claim == "undone" or (claim == "new" and not state.units[CLAIM][0]))
    return is_over and state.is_up and state.kubelet == "up"


def steps(state: State) -> Iterator[tuple[Action, State]]:
    """Yield every possible action with the next state."""
    for some in (_pod_steps, _claim_steps, _kubelet_steps, _daemon_steps):
        yield from ((action, _without_irrelevant_facts(after)) for action, after in some(state))


def _without_irrelevant_facts(state: State) -> State:
    """The state without facts that have no effect any more."""
    named = {x.unit for x in state.leases if x.is_named}
    leased = {x.unit for x in state.leases}
    needed = state.memory | state.file
    units = tuple(
        ("", "") if x == "undone" or (x == "over" and i != CLAIM and i not in needed) else unit
        for i, (x, unit) in enumerate(zip(state.phases, state.units, strict=True))
    )
    missed = state.missed - named
    return state._replace(
        missed=missed,
        missed_long=state.missed_long & missed,
        named=state.named - named,
        units=units,
        on_server=state.on_server or (state.phases[CLAIM] == "undone" and not any(x[0] == CLAIMS for x in leased)),
        ended=state.ended if leased else frozenset(),
        alive=state.alive if leased else frozenset(),
    )


# Pods of the device plugin API.


def _pod_steps(state: State) -> Iterator[tuple[Action, State]]:
    for pod in (0, 1):
        phase = state.phases[pod]
        if phase == "new" and state.kubelet == "up" and state.is_up and (pod == 0 or state.phases[0] != "new"):
            yield from _allocations(state, pod)
        elif phase in ("answered", "frozen") and state.kubelet != "down":
            known = state.memory | {pod}
            yield ("record", pod), _with_phase(state, pod, "runs")._replace(memory=known, file=known)
        elif phase == "runs":
            yield ("end", pod), _with_phase(state, pod, "lingers" if state.has_cgroups else "over")
        elif phase == "lingers":
            yield ("clean up", pod), _with_phase(state, pod, "over")


def _allocations(state: State, pod: int) -> Iterator[tuple[Action, State]]:
    """The kubelet allocates a unit that is free according to its memory; its list can be outdated."""
    forgotten = _forget(state)
    taken = {state.units[x] for x in (0, 1) if x in forgotten.memory or state.phases[x] in ("answered", "frozen")}
    first_device_only = state.phases == ("new", "new", "new")
    for each in OFFERED[state.configuration]:
        if each.unit in taken or (first_device_only and each.device) or (each.unit[1].endswith(".1") and each.device):
            continue  # devices are interchangeable, and so are the shares of one
        wanted = Lease(each.unit, each.device, each.owner, False, frozenset())
        granted, is_granted = _grant(forgotten, wanted)
        yield from _answers(("allocate", pod, *each.unit), granted, is_granted, pod, each.unit)


def _answers(
    action: Action, granted: State, is_granted: bool, holder: int, unit: Unit
) -> Iterator[tuple[Action, State]]:
    """Granted or refused; or the daemon dies after the lease is on disk. A claim's allocation is then unchanged."""
    if not is_granted:
        yield (*action, "no"), granted
        return
    yield (*action, "yes"), _with_phase(granted, holder, "answered", unit)
    if granted.crashes:
        dead = _without_memory(granted._replace(is_up=False, crashes=0))
        yield (*action, "death"), _with_phase(dead, holder, "new", unit) if holder == CLAIM else dead


# The claim.


def _claim_steps(state: State) -> Iterator[tuple[Action, State]]:
    phase = state.phases[CLAIM]
    offers_claims = state.configuration in ("both", "claims", "renamed")
    if phase == "new" and state.kubelet == "up" and state.is_up and offers_claims:
        is_first = state.phases == ("new", "new", "new")
        for unit in (state.units[CLAIM],) if state.units[CLAIM][0] else CLAIM_UNITS[: 1 if is_first else 2]:
            granted, is_granted = _grant(state, Lease(unit, device_of(unit), "claim", True, frozenset()))
            yield from _answers(("prepare", *unit), granted, is_granted, CLAIM, unit)
    elif phase == "answered" and state.kubelet == "up":
        yield ("start", CLAIM), _with_phase(state, CLAIM, "runs")
    elif phase == "runs":
        yield ("end", CLAIM), _with_phase(state, CLAIM, "lingers" if state.has_cgroups else "over")
    elif phase == "lingers":
        yield ("clean up", CLAIM), _with_phase(state, CLAIM, "over")
    elif phase == "over" and state.kubelet == "up":
        if state.is_up:
            left = frozenset(x for x in state.leases if x.owner != "claim")
            yield ("unprepare",), _with_phase(_without_stale_units(state._replace(leases=left)), CLAIM, "undone")
        if not state.on_server:  # force-deleted, and removed from the kubelet's records
            yield ("forget",), _with_phase(state, CLAIM, "undone")
    if state.on_server and phase not in ("new", "undone"):
        yield ("delete",), state._replace(on_server=False)


# The kubelet.


def _kubelet_steps(state: State) -> Iterator[tuple[Action, State]]:
    if state.kubelet != "down" and state.restarts:
        phases = tuple("over" if x in ("answered", "frozen") and i != CLAIM else x for i, x in enumerate(state.phases))
        stopped = state._replace(kubelet="down", restarts=0, phases=phases)
        yield ("stop the kubelet",), stopped
    elif state.kubelet == "down":
        yield ("start the kubelet",), state._replace(kubelet="starting", memory=state.file)
    elif state.kubelet == "starting":
        yield ("learn",), state._replace(kubelet="up")


def _forget(state: State) -> State:
    """A kubelet that knows its pods forgets ended ones, in memory only."""
    if state.kubelet != "up":
        return state
    return state._replace(memory=frozenset(x for x in state.memory if state.phases[x] == "runs"))


# The daemon.


def _daemon_steps(state: State) -> Iterator[tuple[Action, State]]:
    if not state.is_up:
        yield ("start",), reconciled(state._replace(is_up=True, young=frozenset(x.unit for x in state.leases)))
        return
    yield ("look",), reconciled(state)
    if (state.young or state.missed or "answered" in state.phases[:CLAIM]) and "frozen" not in state.phases:
        yield ("wait",), _after_the_grace(state)
    if state.crashes:
        yield ("crash",), _without_memory(state._replace(is_up=False, crashes=0))
    for configuration in state.next:
        yield ("configure", configuration), state._replace(configuration=configuration, next=())


def _after_the_grace(state: State) -> State:
    """Time passes, longer than the grace."""
    frozen = tuple("frozen" if x == "answered" and i != CLAIM else x for i, x in enumerate(state.phases))
    return state._replace(young=frozenset(), missed_long=state.missed_long | state.missed, phases=frozen)


def _grant(state: State, wanted: Lease) -> tuple[State, bool]:
    """Lease a unit; if its device is held, run a pass of the reconciler, and then lease the unit or refuse."""
    for attempt in (state, None):
        now = attempt or reconciled(state)
        others = frozenset(x for x in now.leases if x.unit != wanted.unit)  # a unit's own lease is replaced
        if all(x.device != wanted.device or x.owner == wanted.owner for x in others):
            unit = {wanted.unit}
            granted = now._replace(leases=others | {wanted}, young=now.young | unit)
            return (
                granted._replace(missed=now.missed - unit, missed_long=now.missed_long - unit, named=now.named - unit),
                True,
            )
    return now, False


def reconciled(state: State) -> State:
    """One pass of the reconciler."""
    state = _forget(state)
    listed = {state.units[x]: x for x in state.memory & {0} if state.kubelet == "up" and state.phases[x] == "runs"}
    if state.kubelet == "up" and state.phases[CLAIM] == "runs":
        listed[state.units[CLAIM]] = CLAIM
    cgroups = {i for i, x in enumerate(state.phases) if x in ("runs", "lingers")} if state.has_cgroups else None
    state = _follow_pods(state, cgroups)
    verdicts = {x.unit: _verdict(state, x, listed, cgroups, is_fresh=False) for x in state.leases}
    if "too old" in verdicts.values() and state.kubelet != "down":  # the kubelet writes its file at our next list
        state = state._replace(file=state.memory)
        verdicts = {x.unit: _verdict(state, x, listed, cgroups, is_fresh=True) for x in state.leases}
    held = {unit for unit, verdict in verdicts.items() if verdict == "held"}
    left: set[Lease] = set()
    missed = {x for x in state.missed if verdicts.get(x) not in ("held", "too old")}
    named = set(state.named)
    for lease in state.leases:
        unit = lease.unit
        is_ours, is_young = unit[0] != CLAIMS, unit in state.young
        if unit in held and not is_young:
            if unit in listed or not is_ours:
                named.add(unit)
            entry = _entry(state, unit)
            pods = frozenset({entry}) if unit in listed and entry is not None and is_ours else _pods_of(state, lease)
            lease = lease._replace(is_named=lease.is_named or unit in listed, pods=pods or lease.pods)
        if verdicts[unit] == "ended" and not is_young:
            if lease.is_named or unit in named or (unit in missed and unit in state.missed_long):
                continue
            missed.add(unit)
        left.add(lease)
    known = {x.unit for x in left}
    return state._replace(
        leases=frozenset(left),
        missed=frozenset(missed & known),
        missed_long=frozenset(state.missed_long & missed & known),
        named=frozenset(named & known),
        young=state.young & known,
    )


def _verdict(
    state: State, lease: Lease, listed: dict[Unit, int], cgroups: set[int] | None, *, is_fresh: bool
) -> Literal["held", "ended", "not known", "too old"]:
    pods = _pods_of(state, lease)
    if lease.unit in listed or (cgroups and pods & cgroups):
        return "held"
    if lease.unit[0] == CLAIMS:
        if state.kubelet != "up":
            return "not known"
        if state.phases[CLAIM] != "undone":
            return "held"
        return "held" if state.on_server else "ended"
    if pods and pods <= state.ended:
        return "ended"
    if state.kubelet != "up":
        return "not known"
    if _entry(state, lease.unit) is None:
        return "ended"
    return "held" if is_fresh else "too old"


def _pods_of(state: State, lease: Lease) -> frozenset[int]:
    if lease.unit[0] == CLAIMS:
        return lease.pods | {CLAIM} if state.phases[CLAIM] != "undone" else lease.pods
    entry = _entry(state, lease.unit)
    return lease.pods if entry is None else lease.pods | {entry}


def _entry(state: State, unit: Unit) -> int | None:
    """The pod for which the kubelet's file contains a unit."""
    return next((x for x in sorted(state.file, reverse=True) if state.units[x] == unit), None)


def _follow_pods(state: State, cgroups: set[int] | None) -> State:
    if cgroups is None:
        return state
    mine = frozenset[int]().union(*(_pods_of(state, x) for x in state.leases))
    ended = ((state.ended | (state.alive - cgroups)) & mine) - cgroups
    return state._replace(ended=ended, alive=mine & cgroups)


def _without_memory(state: State) -> State:
    nobody = frozenset[Unit]()
    return state._replace(
        alive=frozenset(), ended=frozenset(), missed=nobody, missed_long=nobody, named=nobody, young=nobody
    )


def _without_stale_units(state: State) -> State:
    known = {x.unit for x in state.leases}
    return state._replace(young=state.young & known, missed=state.missed & known, missed_long=state.missed_long & known)


def _with_phase(state: State, holder: int, phase: Phase, unit: Unit | None = None) -> State:
    phases, units = list(state.phases), list(state.units)
    phases[holder] = phase
    if unit is not None:
        units[holder] = unit
    return state._replace(phases=tuple(phases), units=tuple(units))
