"""The Node object from which the kubelet decides whether a pod fits: the API server's, or its own without one.

The capacity is the same on every machine, so that a pod that fits in one test run also fits in the next. It is large,
because simulated containers use nothing.
Source: the kubelet's `GetCachedNode`, `initialNode` and `nodestatus/setters.go`.
"""

import platform
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from kubelet.errors import NodeError
from kubelet.pods.node_fit import OPERATING_SYSTEM
from resourceapi.objects import ObjectMeta
from resourceapi.objects.core import Node, NodeStatus
from resourceapi.objects.names import label_key, label_value
from resourceapi.objects.quantity import Quantity, QuantityError

DEFAULT_CAPACITY: Mapping[str, str] = MappingProxyType(
    {"cpu": "1000", "memory": "10Ti", "ephemeral-storage": "10Ti", "pods": "10000"}
)
"""What a node has, unless it is created with other amounts."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Go's names, if they differ


class NodeObject:
    """The node's name, labels, taints and resources."""

    def __init__(
        self,
        name: str,
        capacity: Mapping[str, str | int],
        devices: Callable[[], Mapping[str, int]],
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`capacity` is without devices and replaces defaults; `devices` are the allocatable ones.

        `labels` are those that the kubelet does not set by itself. Raises `NodeError` for an invalid amount or label.
        """
        _check_labels(labels)
        self.name = name
        self.labels: Mapping[str, str] = _kubelet_labels(name) | dict(labels)
        """The labels with which the kubelet registers the node."""
        self.capacity: Mapping[str, Quantity] = {
            key: _quantity(key, amount) for key, amount in {**DEFAULT_CAPACITY, **capacity}.items()
        }
        """The capacity without devices. All of it is allocatable."""
        self.api_server: Callable[[bool], Awaitable[Node | None]] | None = None
        """Returns the API server's object, None if there is none; True reads it again instead of from the watch."""
        self._devices = devices

    async def read(self, *, again: bool = False) -> Node:
        """Return the API server's object if there is one, otherwise the kubelet's own.

        Resources that the API server's object does not have yet are as the kubelet will report them.
        """
        found, own = await self.api_server(again) if self.api_server is not None else None, self.own()
        if found is None:
            return own
        allocatable = {**own.status.allocatable, **found.status.allocatable}
        return replace(found, status=replace(found.status, allocatable=allocatable))

    def own(self) -> Node:
        """Return the object that the kubelet would register."""
        devices = {name: Quantity.of(count) for name, count in self._devices().items()}
        status = NodeStatus(capacity=self.capacity, allocatable={**self.capacity, **devices})
        return Node(metadata=ObjectMeta(name=self.name, labels=self.labels), status=status)


def architecture() -> str:
    """Return Go's name of the machine's architecture."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _kubelet_labels(name: str) -> dict[str, str]:
    what = {"os": OPERATING_SYSTEM, "arch": architecture()}
    made = {f"{group}/{key}": value for group in ("kubernetes.io", "beta.kubernetes.io") for key, value in what.items()}
    return made | {"kubernetes.io/hostname": name}


def _check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        for problem in (*label_key(key), *label_value(value)):
            raise NodeError(f"label {key}={value}: {problem}")


def _quantity(name: str, amount: str | int) -> Quantity:
    try:
        found = Quantity.parse(str(amount))
    except QuantityError as error:
        raise NodeError(f"capacity {name}: {amount!r}: {error}") from error
    if found < Quantity.of(0):
        raise NodeError(f"capacity {name}: {amount!r}: must not be negative")
    return found
