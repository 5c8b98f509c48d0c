"""Whether the configured devices are available on this node, in words for /readyz.

A rolling update ends the older instance when the new one is ready, and only then does the new one get the state. So
readiness never depends on the state. An instance that serves beside an older one (`POD_UID`) is ready when the kubelet
has registered it, so that the end of the older one causes no gap. An instance that serves only after it has the state
is always ready.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deviceplugin import ResourceStatus

if TYPE_CHECKING:
    from dra_plugin import DraStatus


def not_ready_reasons(resources: Sequence[ResourceStatus], dra: "DraStatus | None" = None) -> list[str]:
    """Return a reason for each resource, and for DRA, that is not registered with the kubelet; empty if all are.

    DRA also needs stored ResourceSlices: without the right to write them, no pod gets a device. An instance that waits
    for the state has none to store yet.
    """
    away = [(f"resource {x.name}", x.last_error) for x in resources if not x.streaming]
    if dra is not None and not dra.registered:
        away.append(("the DRA driver", dra.last_error))
    missing = [f"{what} is not registered with the kubelet" + (f": {error}" if error else "") for what, error in away]
    if dra is not None and dra.registered and not dra.published:
        why = f": {dra.last_error}" if dra.last_error else ""
        missing.append(f"the ResourceSlices of this node are not stored yet{why}")
    return missing
