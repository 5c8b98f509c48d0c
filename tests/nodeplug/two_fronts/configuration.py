"""The configurations of a life: an administrator may rename, remove, narrow, split, group and move what is offered."""

import random
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from resources.groups import SameAttribute
from resources.resource import Api, CdiPolicy, DraOptions, Partition, Resource
from resources.selector import Ids
from tests.nodeplug.two_fronts.host import CARDS, PHYSICAL, PORTS, UPLINK, VIRTUAL

_HALVES = DraOptions(
    counters={"memory": "80Gi"}, partitions=(Partition("half", {"memory": "40Gi"}, count=2),), taint="NoExecute"
)
_APIS: tuple[Api, ...] = ("device-plugin", "dra", "both", "both")
_CDI: tuple[CdiPolicy, ...] = ("auto", "auto", True, False)
_SHARES = (3, 3, 5, 1)


def configuration(rng: random.Random) -> list[Resource]:
    """One that could be in the file: of many resources or of few, for each its own API or for all the same."""
    apis: Sequence[Api] = (rng.choice(("device-plugin", "dra")),) if rng.random() < 0.2 else _APIS
    likely = rng.choice((0.4, 0.95, 0.95))

    def resource(name: str, *devices: str, **options: Any) -> Resource:
        suffix = rng.choice(("", "", "", "-renamed"))
        kept = [x for x in devices if rng.random() < 0.9] or [devices[0]]
        api = rng.choice(apis)
        return Resource(f"example.com/{name}{suffix}", Ids(tuple(kept)), cdi=rng.choice(_CDI), api=api, **options)

    found = [
        resource("plain", "misc-one", "misc-two", group=SameAttribute("bus") if rng.random() < 0.2 else None),
        resource("plugin", "misc-three"),
        resource("claimed", "misc-four"),
        resource("shared", "misc-many", shares=rng.choice(_SHARES)),
        resource("card", "misc-card", dra=_HALVES if rng.random() < 0.7 else DraOptions()),
        resource("ports", *PORTS),
        resource("cards", *sorted({*CARDS} | UPLINK)),
        resource("physical", PHYSICAL),
        resource("virtual", VIRTUAL[0][:-1] + "[12]"),
    ]
    return [x for x in found if rng.random() < likely] or found[:1]


def changed(rng: random.Random, resources: Sequence[Resource], in_use: Collection[str]) -> list[Resource]:
    """The same with one resource changed in one respect, most likely one that is `in_use`."""
    found = list(resources)
    likely = [i for i, x in enumerate(found) if x.name in in_use and rng.random() < 0.8]
    number = rng.choice(likely or range(len(found)))
    before = found[number]
    match rng.choice(("name", "api", "cdi", "removed", "split", "split", "split")):
        case "name":
            found[number] = replace(before, name=f"{before.name}-anew")
        case "api":
            found[number] = replace(before, api=rng.choice(_APIS))
        case "cdi":
            found[number] = replace(before, cdi=rng.choice(_CDI))
        case "removed" if len(found) > 1:
            del found[number]
        case _:
            found = [_split(rng, x) for x in found]
    return found


def _split(rng: random.Random, resource: Resource) -> Resource:
    """Put together or take apart what a resource hands out, where it can be."""
    if "plain" in resource.name:
        return replace(resource, group=None if resource.group else SameAttribute("bus"))
    if "shared" in resource.name:
        return replace(resource, shares=rng.choice([x for x in _SHARES if x != resource.shares]))
    if "card" in resource.name:
        return replace(resource, dra=DraOptions() if resource.dra.partitions else _HALVES)
    return resource
