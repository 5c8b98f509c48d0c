"""What one Kubernetes release does and another does not, in one place.

The rest of the stand-in asks a `Release` for a named fact and never compares versions. Patch releases: 1.34.4, 1.35.4,
1.36.3 and 1.37.1. Source: changes-1.37, sections 1, 2, 6; the kubelets' code where that says no more.
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
    """A release. `gates` are the feature gates that are on by default, of those that matter here."""

    version: Version
    gates: frozenset[str]

    # device manager and plugin watcher
    tells_instances_apart: bool
    """Device plugins of one resource by path; before, whoever registered last has the name."""
    finds_owner_by_resource: bool
    """A device's health is news for the pod that has it; before, for any pod that has a device of that id."""
    hints_at_device_nodes_only: bool
    """Topology hints are made of NUMA nodes that have devices of the resource."""
    keeps_refused_sockets: bool
    """A socket whose registration failed stays on record: no further attempt, and its end deregisters its endpoint."""

    # DRA manager
    calls_announced_health: bool
    """The health service that a driver announced, until it is unimplemented; before, v1alpha1 of everybody for ever."""
    forgets_unreported_health: bool
    """What a driver reports no more leaves the health cache, which is bounded; before, it becomes Unknown."""
    replaces_prepared_devices: bool
    """A repeated prepare replaces the devices of its claim and driver; before, it adds them once more."""
    refuses_unpreparing_claims: bool
    """No pod may join a claim while it is unprepared for its last one."""
    unprepares_what_pods_refer_to: bool
    """A pod that ends has the claims unprepared that were prepared for it; before, those that its spec names, even if
    they are another pod's by now, and a name that leads nowhere keeps the pod."""
    refuses_skipped_operations: bool
    """A claim whose results skip operations is refused while that feature gate is off; before, nobody looks."""
    has_share_ids: bool
    """Share ids of prepared devices are kept and shown."""
    lists_claims_once: bool
    """Pod resources lists a claim once for a container; before, once for each of its references."""
    says_why_no_sandbox: bool
    """A pod's condition says why its containers cannot start yet, or no more."""
    pod_word: str
    """How errors about a claim that was made for somebody else call a pod."""

    def has(self, gate: str) -> bool:
        """Tell whether a feature gate is on."""
        return gate in self.gates

    def why_not(self, gate: str) -> str:
        """Why what needs a feature gate cannot be tried; empty where it can."""
        return "" if self.has(gate) else f"the feature gate {gate} is off in Kubernetes {self.version}"


_1_37 = Release(
    version="1.37",
    gates=frozenset({RESOURCE_HEALTH_STATUS, EXTENDED_RESOURCE, CONSUMABLE_CAPACITY, DEVICE_TAINTS}),
    tells_instances_apart=True,
    finds_owner_by_resource=True,
    hints_at_device_nodes_only=True,
    keeps_refused_sockets=False,
    calls_announced_health=True,
    forgets_unreported_health=True,
    replaces_prepared_devices=True,
    refuses_unpreparing_claims=True,
    unprepares_what_pods_refer_to=True,
    refuses_skipped_operations=True,
    has_share_ids=True,
    lists_claims_once=True,
    says_why_no_sandbox=True,
    pod_word="Pod",
)

# the older ones: what they do otherwise than the one after them
_1_36 = replace(
    _1_37,
    version="1.36",
    tells_instances_apart=False,
    finds_owner_by_resource=False,
    calls_announced_health=False,
    forgets_unreported_health=False,
    replaces_prepared_devices=False,
    refuses_unpreparing_claims=False,
    unprepares_what_pods_refer_to=False,
    refuses_skipped_operations=False,
    says_why_no_sandbox=False,
)

_1_35 = replace(
    _1_36,
    version="1.35",
    gates=frozenset(),
    hints_at_device_nodes_only=False,
    keeps_refused_sockets=True,
    lists_claims_once=False,
    pod_word="pod",
)

_1_34 = replace(_1_35, version="1.34", has_share_ids=False)

RELEASES: Mapping[Version, Release] = MappingProxyType({each.version: each for each in (_1_34, _1_35, _1_36, _1_37)})
DEFAULT_VERSION: Version = "1.37"
LATEST = RELEASES[DEFAULT_VERSION]
