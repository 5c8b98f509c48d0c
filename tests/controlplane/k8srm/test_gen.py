"""Generated shapes (allocator.md 6.5)."""

import pytest

from controlplane.k8srm import K8srmError
from controlplane.k8srm.gen import SHAPES, generate


@pytest.mark.parametrize(
    ("shape", "pools", "devices"),
    [
        ("foozer-1000-tiny", 1, 2),
        ("foozer-1000-small", 1, 4),
        ("foozer-1000-medium", 1, 8),
        ("foozer-1000-large", 1, 16),
        ("foozer-4000-tiny", 1, 2),
        ("foozer-4000-small", 1, 4),
        ("foozer-4000-medium", 1, 8),
        ("foozer-4000-large", 1, 16),
        ("shape-zero", 1, 2),
        ("shape-one", 2, 2),
        ("shape-two", 4, 4),
        ("shape-three", 4, 4),
        ("shape-foozer-barzer", 8, 2),
    ],
)
def test_shape_has_expected_pools_and_devices(shape: str, pools: int, devices: int) -> None:
    made = generate(shape, 3)
    assert len(made) == 3 * pools
    assert {len(pool.spec.devices) for pool in made} == {devices}
    assert len({pool.metadata.name for pool in made}) == len(made), "every pool has a name of its own"
    assert [pool.spec.node_name for pool in made[::pools]] == [f"{shape}-{number:02}" for number in range(3)]


def test_devices_have_numa_attribute() -> None:
    (pool,) = generate("foozer-4000-medium", 1)
    assert (pool.metadata.name, pool.spec.driver) == ("foozer-4000-medium-00-foozer", "example.com-foozer")
    assert [(each.name, each.string_value or each.sem_ver_value) for each in pool.spec.attributes] == [
        ("vendor", "example.com"),
        ("model", "foozer-4000"),
        ("firmwareVersion", "1.8.2"),
        ("driverVersion", "4.2.1-gen3"),
    ]
    assert [(each.name, each.attributes[0].string_value) for each in pool.spec.devices][3:5] == [
        ("dev-03", "0"),
        ("dev-04", "1"),
    ]


def test_older_shape_has_one_pool_per_numa_node() -> None:
    made = generate("shape-foozer-barzer", 1)
    assert [pool.metadata.name for pool in made][3:5] == [
        "shape-foozer-barzer-00-foozer-03",
        "shape-foozer-barzer-00-barzer-00",
    ]
    assert made[3].spec.attributes[-1].string_value == "3"


def test_unknown_shape_is_refused() -> None:
    with pytest.raises(K8srmError, match='generator "x" not found, valid generators are: foozer-1000-tiny'):
        generate("x")
    assert len(SHAPES) == 13
