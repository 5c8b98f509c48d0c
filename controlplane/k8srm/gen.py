"""Example pools: the pools of nodes of some shapes, as data.

Pool names contain the node's name, which the prototype's lack. Source: allocator specification 6.5.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from controlplane.k8srm.errors import K8srmError
from controlplane.k8srm.types import Attribute, Device, DevicePool, DevicePoolSpec
from resourceapi.objects import ObjectMeta


class Model(Struct, frozen=True):
    """An example device."""

    base: str
    name: str
    firmware: str
    driver: str

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes that all devices of the model have."""
        return (
            Attribute(name="vendor", string_value="example.com"),
            Attribute(name="model", string_value=self.name),
            Attribute(name="firmwareVersion", sem_ver_value=self.firmware),
            Attribute(name="driverVersion", sem_ver_value=self.driver),
        )


class Shape(Struct, frozen=True):
    """A node: its NUMA nodes, each with a number of devices per model, in one pool or in one pool per NUMA node."""

    numa_nodes: int
    devices: Mapping[Model, int]
    is_pool_per_numa_node: bool = True


def _newer_model(model: str) -> Model:
    return Model("foozer", model, "1.8.2", "4.2.1-gen3")


_FOOZER = Model("foozer", "foozer-1000", "4.2.1-gen3", "1.8.2")
_FOOZER_4000 = Model("foozer", "foozer-4000", "4.2.1-gen7", "1.8.2")
_BARZER = Model("barzer", "barzer-1000", "1.1.1", "1.8.2")

_SIZES = {"tiny": (1, 2), "small": (1, 4), "medium": (2, 4), "large": (4, 4)}

SHAPES: Mapping[str, Shape] = {
    **{
        f"{model}-{size}": Shape(numa_nodes, {_newer_model(model): devices}, is_pool_per_numa_node=False)
        for model in ("foozer-1000", "foozer-4000")
        for size, (numa_nodes, devices) in _SIZES.items()
    },
    "shape-zero": Shape(1, {_FOOZER: 2}),
    "shape-one": Shape(2, {_FOOZER: 2}),
    "shape-two": Shape(4, {_FOOZER_4000: 4}),
    "shape-three": Shape(4, {_BARZER: 4}),
    "shape-foozer-barzer": Shape(4, {_FOOZER: 2, _BARZER: 2}),
}
"""All shapes by name."""


def generate(shape: str, nodes: int = 2) -> list[DevicePool]:
    """Return the pools of that many nodes of a shape. Raises K8srmError for an unknown shape."""
    if shape not in SHAPES:
        raise K8srmError(f'generator "{shape}" not found, valid generators are: {", ".join(SHAPES)}')
    return [pool for number in range(nodes) for pool in _node(f"{shape}-{number:02}", SHAPES[shape])]


def _node(node: str, shape: Shape) -> Iterator[DevicePool]:
    for model, count in shape.devices.items():
        if shape.is_pool_per_numa_node:
            for numa in range(shape.numa_nodes):
                on_numa = Attribute(name="numa", string_value=str(numa))
                devices = tuple(Device(name=f"dev-{index:02}") for index in range(count))
                yield _pool(f"{node}-{model.base}-{numa:02}", node, model, (*model.attributes, on_numa), devices)
        else:
            devices = tuple(
                Device(name=f"dev-{index:02}", attributes=(Attribute(name="numa", string_value=str(index // count)),))
                for index in range(shape.numa_nodes * count)
            )
            yield _pool(f"{node}-{model.base}", node, model, model.attributes, devices)


def _pool(
    name: str, node: str, model: Model, attributes: tuple[Attribute, ...], devices: tuple[Device, ...]
) -> DevicePool:
    spec = DevicePoolSpec(node_name=node, driver=f"example.com-{model.base}", attributes=attributes, devices=devices)
    return DevicePool(metadata=ObjectMeta(name=name), spec=spec)
