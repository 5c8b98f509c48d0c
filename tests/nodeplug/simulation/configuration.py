"""The configurations of a simulation.

An administrator can rename, remove, restrict, split, share, group and move resources, and change the names of devices
and their container paths.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from resources.groups import SameAttribute
from resources.resource import Api, CdiPolicy, DraOptions, Identity, Partition, Resource
from resources.resource import Ids as Names
from resources.selector import Ids
from tests.nodeplug.simulation.host import CARDS, PHYSICAL, PORTS, UPLINK, VIRTUAL
from tests.nodeplug.simulation.stick import STICK_IDS

_HALVES = DraOptions(
    counters={"memory": "80Gi"}, partitions=(Partition("half", {"memory": "40Gi"}, count=2),), taint="NoExecute"
)
_LAYOUTS = (
    DraOptions(),
    _HALVES,
    DraOptions(counters={"slices": "4"}, partitions=(Partition("half-as-slices", {"slices": "2"}, count=2),)),
)
_APIS: tuple[Api, ...] = ("device-plugin", "dra", "both", "both")
_CDI: tuple[CdiPolicy, ...] = ("auto", "auto", True, False)
_NODES: Sequence[Names] = ("identity", "identity", "path")
_FUNCTIONS: Sequence[Names] = ("identity", "pciBusID")
_PORTS: Sequence[Names] = ("identity", "path", "path", "pciBusID")
_PATHS = ("", "", "/dev/mine", "/dev/at-{name}")
_SHARES: Mapping[str, Sequence[int]] = {"shared": (3, 3, 5, 1), "ports": (1, 1, 2), "claimed": (1, 1, 1, 3)}


def configuration(rng: random.Random) -> list[Resource]:
    """A valid configuration: many or few resources, with one API each or the same for all."""
    apis: Sequence[Api] = (rng.choice(("device-plugin", "dra")),) if rng.random() < 0.2 else _APIS
    likely = rng.choice((0.4, 0.95, 0.95))

    def resource(name: str, *devices: str, **options: Any) -> Resource:
        suffix = rng.choice(("", "", "", "-renamed"))
        kept = [x for x in devices if rng.random() < 0.9] or [devices[0]]
        found = Resource(
            f"example.com/{name}{suffix}",
            Ids(tuple(kept)),
            cdi=rng.choice(_CDI),
            api=rng.choice(apis),
            shares=rng.choice(_SHARES.get(name, (1,))),
            **options,
        )
        return replace(
            found,
            ids=rng.choice(_names(found)),
            container_path=rng.choice(_paths(found)),
            identity=rng.choice(_identities(found)),
        )

    found = [
        resource("plain", "misc-one", "misc-two", group=SameAttribute("bus") if rng.random() < 0.2 else None),
        resource("plugin", "misc-three"),
        resource("claimed", "misc-four"),
        resource("shared", "misc-many"),
        resource("card", "misc-card", dra=_HALVES if rng.random() < 0.7 else DraOptions()),
        resource("ports", *PORTS),
        resource("stick", *STICK_IDS),
        resource("cards", *sorted({*CARDS} | UPLINK)),
        resource("physical", PHYSICAL),
        resource("virtual", VIRTUAL[0][:-1] + "[12]"),
    ]
    return [x for x in found if rng.random() < likely] or found[:1]


def changed(rng: random.Random, resources: Sequence[Resource], in_use: Collection[str]) -> list[Resource]:
    """The same configuration with one change of one resource, preferably of one that is `in_use`."""
    found = list(resources)
    likely = [i for i, x in enumerate(found) if x.name in in_use and rng.random() < 0.8]
    number = rng.choice(likely or range(len(found)))
    before = found[number]
    match rng.choice(("name", "api", "cdi", "removed", "ids", "ids", "path", "split", "split", "split")):
        case "name":
            found[number] = replace(before, name=f"{before.name}-anew")
        case "api":
            found[number] = replace(before, api=rng.choice(_APIS))
        case "cdi":
            found[number] = replace(before, cdi=rng.choice(_CDI))
        case "ids":
            found[number] = replace(before, ids=rng.choice([x for x in _names(before) if x != before.ids]))
        case "path":
            found[number] = replace(before, container_path=rng.choice(_paths(before)))
        case "removed" if len(found) > 1:
            del found[number]
        case _:
            found = [_split(rng, x) for x in found]
    return found


def _split(rng: random.Random, resource: Resource) -> Resource:
    """Join or split the devices of a resource, if possible."""
    kind = _kind(resource)
    if kind == "plain":
        group = None if resource.group else SameAttribute("bus")
        return replace(resource, group=group, ids="identity" if group else resource.ids, container_path="")
    if shares := [x for x in _SHARES.get(kind, ()) if x != resource.shares]:
        return replace(resource, shares=rng.choice(shares))
    if kind == "stick":
        return replace(resource, identity="device" if resource.identity == "port" else "port")
    if kind == "card":
        return replace(resource, dra=rng.choice([x for x in _LAYOUTS if x != resource.dra]))
    return resource


def _names(resource: Resource) -> Sequence[Names]:
    """The possible names of its devices; a group can have several nodes."""
    kind = _kind(resource)
    if kind in ("cards", "physical", "virtual"):
        return _FUNCTIONS
    return _PORTS if kind == "ports" else _NODES


def _paths(resource: Resource) -> Sequence[str]:
    """The possible container paths of a device with one node."""
    return ("",) if resource.group is not None or _names(resource) is _FUNCTIONS else _PATHS


def _identities(resource: Resource) -> Sequence[Identity]:
    return ("device", "port", "port") if _kind(resource) == "stick" else ("device",)


def _kind(resource: Resource) -> str:
    return resource.name.partition("/")[2].partition("-")[0]
