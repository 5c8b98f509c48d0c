"""Small random problems against exhaustive search: whether a node fits, and that the first claim uses few pools."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.k8srm import select_node
from controlplane.k8srm.load import cluster_of
from controlplane.k8srm.types import DeviceClaim, DevicePool
from tests.controlplane.k8srm.build import Plain, claim, device, device_class, pool, resource

ChosenDevices = tuple[tuple[str, str], ...]  # pool and device

attributes = st.fixed_dictionaries(
    {}, optional={"numa": st.sampled_from([0, 1]), "colour": st.sampled_from(["red", "blue"])}
)
devices = st.lists(st.tuples(attributes, st.integers(0, 2)), min_size=1, max_size=3)
pools = st.lists(st.tuples(devices, st.integers(0, 4)), min_size=1, max_size=3)
details = st.fixed_dictionaries(
    {"deviceClass": st.just("c"), "requests": st.fixed_dictionaries({"count": st.integers(1, 2)})},
    optional={"constraints": st.just("device.colour == 'red'"), "matchAttributes": st.just(["numa"])},
)
claims = st.lists(
    st.tuples(st.lists(details, min_size=1, max_size=2), st.booleans()),
    min_size=1,
    max_size=2,
)


def manifests(pool_parts: list[Any], claim_parts: list[Any]) -> list[Plain]:
    return [
        device_class("c", "d"),
        *(
            pool(
                f"p{number}",
                "n",
                [
                    device(f"d{index}", values, requests={"slices": str(draw)})
                    for index, (values, draw) in enumerate(parts)
                ],
                resources=[resource("slices", str(slices))],
            )
            for number, (parts, slices) in enumerate(pool_parts)
        ),
        *(
            claim(f"x{number}", *wanted, matchAttributes=["numa"] if is_aligned else [])
            for number, (wanted, is_aligned) in enumerate(claim_parts)
        ),
    ]


@given(pools, claims)
def test_solver_agrees_with_exhaustive_search(pool_parts: list[Any], claim_parts: list[Any]) -> None:
    cluster = cluster_of(manifests(pool_parts, claim_parts))
    wanted = list(cluster.claims.values())
    outcome = select_node(wanted, cluster)
    solutions = list(all_solutions(wanted, list(cluster.pools.values())))
    assert (outcome.node is not None) == bool(solutions)
    if solutions:
        ours = tuple(
            tuple(
                tuple((x.pool, x.device) for x in taken if x.requirement.id.instance == index)
                for index in range(len(each.spec.claims))
            )
            for each, taken in zip(wanted, outcome.assignments, strict=True)
        )
        assert ours in solutions
        assert pool_count(ours[0]) == min(pool_count(solution[0]) for solution in solutions)


def pool_count(instances: tuple[ChosenDevices, ...]) -> int:
    return len({name for chosen in instances for name, _ in chosen})


def all_solutions(
    wanted: list[DeviceClaim], offered: list[DevicePool]
) -> Iterator[tuple[tuple[ChosenDevices, ...], ...]]:
    """All solutions, found by exhaustive search."""
    values = {
        (each.metadata.name, x.name): {a.name: (a.int_value, a.string_value) for a in x.attributes}
        for each in offered
        for x in each.spec.devices
    }
    draws = {(each.metadata.name, x.name): x.requests["slices"].value() for each in offered for x in each.spec.devices}
    slices = {each.metadata.name: each.spec.resources[0].capacity.value() for each in offered}
    places = [(number, index) for number, each in enumerate(wanted) for index in range(len(each.spec.claims))]

    def values_match(chosen: ChosenDevices) -> bool:
        found = [values[each].get("numa") for each in chosen]
        return None not in found and len(set(found)) <= 1

    def fits(chosen: dict[tuple[int, int], ChosenDevices]) -> bool:
        taken = [each for part in chosen.values() for each in part]
        if any(sum(draws[each] for each in taken if each[0] == name) > amount for name, amount in slices.items()):
            return False
        for number, each in enumerate(wanted):
            parts = tuple(x for place, part in chosen.items() if place[0] == number for x in part)
            if each.spec.match_attributes and not values_match(parts):
                return False
        return True

    def descend(
        place: int, chosen: dict[tuple[int, int], ChosenDevices]
    ) -> Iterator[dict[tuple[int, int], ChosenDevices]]:
        if place == len(places):
            if fits(chosen):
                yield dict(chosen)
            return
        number, index = places[place]
        detail = wanted[number].spec.claims[index].detail
        taken = {each for part in chosen.values() for each in part}
        usable = [
            each
            for each in values
            if each not in taken and (not detail.constraints or values[each].get("colour") == (None, "red"))
        ]
        for part in combinations(usable, detail.requests["count"].value()):
            if not detail.match_attributes or values_match(part):
                yield from descend(place + 1, {**chosen, places[place]: part})

    for solution in descend(0, {}):
        yield tuple(
            tuple(solution[number, index] for index in range(len(each.spec.claims)))
            for number, each in enumerate(wanted)
        )
