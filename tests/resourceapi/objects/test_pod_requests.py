"""The peak demand of a pod's containers, compared with a simulation of their sequence."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from resourceapi.objects import Quantity
from resourceapi.objects.core import Container, Pod, PodSpec, ResourceRequirements
from resourceapi.objects.pod_requests import container_limits, peak

AMOUNTS = st.dictionaries(st.sampled_from("xy"), st.integers(0, 3))


def container(amounts: dict[str, int], *, is_sidecar: bool = False) -> Container:
    limits = {name: Quantity.of(amount) for name, amount in amounts.items()}
    return Container(resources=ResourceRequirements(limits=limits), restart_policy="Always" if is_sidecar else None)


@given(st.lists(st.tuples(st.booleans(), AMOUNTS), max_size=5), st.lists(AMOUNTS, max_size=3))
def test_peak_equals_maximum_of_simulated_container_sequence(
    init: list[tuple[bool, dict[str, int]]], containers: list[dict[str, int]]
) -> None:
    held: Counter[str] = Counter()
    peak_amounts: Counter[str] = Counter()
    for is_sidecar, amounts in init:
        held.update(amounts)
        peak_amounts |= held
        if not is_sidecar:
            held.subtract(amounts)
    for amounts in containers:
        held.update(amounts)
    before = tuple(container(amounts, is_sidecar=is_sidecar) for is_sidecar, amounts in init)
    pod = Pod(spec=PodSpec(init_containers=before, containers=tuple(map(container, containers))))
    assert peak(pod, container_limits) == +(peak_amounts | held)


def test_fractional_limit_is_rounded_up() -> None:
    half = Container(resources=ResourceRequirements(limits={"example.com/gpu": Quantity.parse("1500m")}))
    assert container_limits(half) == {"example.com/gpu": 2}
