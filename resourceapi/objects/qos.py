"""The quality-of-service class of a pod, which decides which pods are killed first when a node runs out of memory.

Source: kubernetes.io "Pod Quality of Service Classes"; k8s.io/kubernetes pkg/apis/core/helper/qos.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from resourceapi.objects.core import Pod
from resourceapi.objects.quantity import Quantity

QosClass: TypeAlias = Literal["Guaranteed", "Burstable", "BestEffort"]
Amounts: TypeAlias = Mapping[str, str | float | Quantity]
_COMPUTE = ("cpu", "memory")


def qos_class(containers: Iterable[tuple[Amounts, Amounts]]) -> QosClass:
    """Return the class for the (requests, limits) of each container, init containers included.

    A missing request equals the limit. Raises QuantityError.
    """
    limits: dict[str, int] = {}
    requests: dict[str, int] = {}
    is_guaranteed = True
    for wanted, most in containers:
        found = {name: _milli(most.get(name)) for name in _COMPUTE}
        is_guaranteed = is_guaranteed and all(found.values())
        for name, limit in found.items():
            limits[name] = limits.get(name, 0) + limit
            requests[name] = requests.get(name, 0) + (_milli(wanted[name]) if name in wanted else limit)
    if not any((*limits.values(), *requests.values())):
        return "BestEffort"
    return "Guaranteed" if is_guaranteed and limits == requests else "Burstable"


def pod_qos(pod: Pod) -> QosClass:
    """Return a pod's class. If the pod has resources as a whole, they count instead of those of its containers."""
    whole = pod.spec.resources
    has_whole = whole is not None and (whole.requests or whole.limits)
    found = [whole] if whole is not None and has_whole else [each.resources for each in pod.all_containers]
    return qos_class((each.requests, each.limits) for each in found)


def _milli(amount: str | float | Quantity | None) -> int:
    if amount is None:
        return 0
    return (amount if isinstance(amount, Quantity) else Quantity.parse(str(amount))).milli_value()
