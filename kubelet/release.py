"""The differences between the kubelets of Kubernetes releases, in one place.

The rest of the stand-in asks a `Release` for a named fact and never compares versions. Patch releases: 1.34.4, 1.35.4,
1.36.3 and 1.37.1. Source: changes-1.37, sections 1, 2, 6; the kubelets' code for what those sections do not cover.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Version = Literal["1.34", "1.35", "1.36", "1.37"]

RESOURCE_HEALTH_STATUS = "ResourceHealthStatus"
EXTENDED_RESOURCE = "DRAExtendedResource"
CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
DEVICE_TAINTS = "DRADeviceTaints"


class Release(Struct, frozen=True, kw_only=True):
    """A release. `gates` are those of the feature gates above that are on by default."""

    version: Version
    gates: frozenset[str]

    # device manager and plugin watcher
    distinguishes_instances: bool
    """Device plugins of one resource are distinguished by path; before, the last one to register has the name."""
    finds_owner_by_resource: bool
    """A health change notifies the pod that has the device; before, any pod that has a device with that id."""
    hints_only_device_nodes: bool
    """Topology hints contain only NUMA nodes that have devices of the resource."""
    keeps_refused_sockets: bool
    """A socket whose registration failed stays recorded: no further attempt; its removal deregisters its endpoint."""

    # DRA manager
    calls_announced_health: bool
    """Calls the health service that a driver announced, until it is unimplemented; before, always v1alpha1."""
    drops_unreported_health: bool
    """Devices that a driver no longer reports leave the health cache, which is bounded; before, they become Unknown."""
    replaces_prepared_devices: bool
    """A repeated prepare replaces the devices of its claim and driver; before, it adds them again."""
    refuses_unpreparing_claims: bool
    """A pod cannot use a claim while the claim is being unprepared for its last pod."""
    unprepares_referenced_claims: bool
    """The end of a pod unprepares the claims that were prepared for the pod.

    Before, it unprepares the claims that the spec names, even if they belong to another pod meanwhile; an unresolvable
    name keeps the pod from ending."""
    refuses_skipped_operations: bool
    """A claim whose results skip operations is refused while that feature gate is off; before, it is not checked."""
    has_share_ids: bool
    """Share ids of prepared devices are kept and shown."""
    lists_claims_once: bool
    """Pod resources lists a claim once for a container; before, once for each of its references."""
    reports_sandbox_failure: bool
    """A pod's condition contains the reason why its containers cannot start."""
    pod_word: str
    """The spelling of "pod" in errors about a claim that was created for another pod."""

    def has(self, gate: str) -> bool:
        """Return whether a feature gate is on."""
        return gate in self.gates

    def reason_unsupported(self, gate: str) -> str:
        """Return the reason why a test that needs a feature gate cannot run; empty if the gate is on."""
        return "" if self.has(gate) else f"the feature gate {gate} is off in Kubernetes {self.version}"


_1_37 = Release(
    version="1.37",
    gates=frozenset({RESOURCE_HEALTH_STATUS, EXTENDED_RESOURCE, CONSUMABLE_CAPACITY, DEVICE_TAINTS}),
    distinguishes_instances=True,
    finds_owner_by_resource=True,
    hints_only_device_nodes=True,
    keeps_refused_sockets=False,
    calls_announced_health=True,
    drops_unreported_health=True,
    replaces_prepared_devices=True,
    refuses_unpreparing_claims=True,
    unprepares_referenced_claims=True,
    refuses_skipped_operations=True,
    has_share_ids=True,
    lists_claims_once=True,
    reports_sandbox_failure=True,
    pod_word="Pod",
)

# Each older release lists its differences from the next newer one.
_1_36 = replace(
    _1_37,
    version="1.36",
    distinguishes_instances=False,
    finds_owner_by_resource=False,
    calls_announced_health=False,
    drops_unreported_health=False,
    replaces_prepared_devices=False,
    refuses_unpreparing_claims=False,
    unprepares_referenced_claims=False,
    refuses_skipped_operations=False,
    reports_sandbox_failure=False,
)

_1_35 = replace(
    _1_36,
    version="1.35",
    gates=frozenset(),
    hints_only_device_nodes=False,
    keeps_refused_sockets=True,
    lists_claims_once=False,
    pod_word="pod",
)

_1_34 = replace(_1_35, version="1.34", has_share_ids=False)

RELEASES: Mapping[Version, Release] = MappingProxyType({each.version: each for each in (_1_34, _1_35, _1_36, _1_37)})
DEFAULT_VERSION: Version = "1.37"
LATEST = RELEASES[DEFAULT_VERSION]
