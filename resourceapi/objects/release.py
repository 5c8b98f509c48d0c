"""What one Kubernetes release says of resource.k8s.io and another does not, in one place.

The rules ask a `Release` for a named fact and never compare versions. What 1.34 and 1.35 refuse they refuse in 1.36's
words. Patch releases: 1.34.4, 1.35.4, 1.36.3 and 1.37.1. Source: changes-1.37, sections 3 and 6; the releases'
validation where that says no more.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Version = Literal["1.34", "1.35", "1.36", "1.37"]


class Release(Struct, frozen=True, kw_only=True):
    """A release, with its feature gates as they are by default."""

    version: Version
    patch: int
    """Of the release whose answers were recorded."""

    has_declared_rules: bool
    """What the API's types declare of their fields is checked last, and in words of its own (`declared_rules`)."""
    checks_allocated_tolerations: bool
    """Tolerations in an allocation result are checked as those of a request are."""
    checks_changed_as_new: bool
    """The metadata of a class or claim that changes must be what that of a new one could be."""
    bounds_steps: bool
    """A step of a capacity is positive, and with one everything lies within 64 bits; the default has its own path."""
    trusts_stored: bool
    """Capacities that did not change and expressions that are stored are not checked again."""
    has_newer_metadata_rules: bool
    """Owner references have a position; what metadata and conditions lack is required, no longer invalid."""
    shows_alpha_fields: bool
    """A refused value is shown with 1.37's fields of alpha features."""
    has_taint_rules_in_v1: bool
    """DeviceTaintRule is served as v1, too."""
    selects_by_pool: bool
    """Slices can be selected by `spec.pool.name`."""
    has_taint_rules_in_v1beta2: bool
    """DeviceTaintRule is served as v1beta2, beside v1alpha3."""
    checks_claim_writers: bool
    """Who changes a claim's status needs a right for the part that changes: `resourceclaims/binding` or `/driver`."""
    reads_patches_first: bool
    """A patch that is no JSON is refused before its object is looked for, and one to apply in the words of patches."""
    negotiates_custom_lists_first: bool
    """What the answer to a list of custom resources can be is asked before the list's options."""
    explains_empty_names: bool
    """An empty name of a driver is missing, and told what it should look like besides."""
    fails_on_delete_options: bool
    """A deletion's body that is no DeleteOptions is answered as a fault of the server, 500."""
    rules_tell_values: bool
    """What breaks a custom resource's rule is shown with a plain value, and not with its type."""
    lists_versions: bool
    """`kubectl get crd` shows scope and versions, too."""
    owns_metadata_by_status: bool
    """Who writes a status gets to own the metadata in the request, which is not stored."""
    owns_custom_metadata_by_status: bool
    """The same where the status is of a custom resource."""
    fills_max_unavailable: bool
    """A StatefulSet says how many of its pods may be unavailable while they are replaced."""
    fills_missing_drivers: bool
    """A CSIDriver says whether pods are kept from nodes that lack it."""
    counts_autoscalers: bool
    """A HorizontalPodAutoscaler has a generation."""
    scales_to_zero: bool
    """A HorizontalPodAutoscaler may want no copy at all."""
    keeps_owners_of_untyped: bool
    """Who owned what stays so where an update's fields cannot be tracked; before, nobody owns anything then."""
    warns_of_sets: bool
    """Who defines a set of objects or of lists is warned of it."""
    relaxes_service_names: bool
    """A Service's name may begin with a digit."""
    checks_bound_nodes: bool
    """A Binding names a node by a name that one can have."""
    keeps_claims_of_pods: bool
    """What a pod's status says of its claims stays where a writer leaves it out."""
    has_uniform_words: bool
    """A priority level's missing type is required, a storage class's provisioner immutable; before, in own words."""
    warns_of_external_addresses: bool
    """Who gives a Service `externalIPs` is warned of it."""
    warns_of_tokens: bool
    """Who has a CSIDriver get tokens beside the attributes of volumes is told where they are not logged."""
    warns_of_close_traffic: bool
    """Who wants a Service's traffic by `PreferClose` is told the newer word."""
    is_strict_about_ranges: bool
    """A range of addresses has no bits beyond its length."""
    completes_pod_resources: bool
    """What a pod says of its resources as a whole is completed by what all its containers say."""
    has_all_fields: bool
    """The features of 1.36 are on; before, their fields are dropped (`disabled_fields`)."""

    @property
    def minor(self) -> int:
        """The number after the dot."""
        return int(self.version.partition(".")[2])


_1_37 = Release(
    version="1.37",
    patch=1,
    has_declared_rules=True,
    checks_allocated_tolerations=True,
    checks_changed_as_new=True,
    bounds_steps=True,
    trusts_stored=True,
    has_newer_metadata_rules=True,
    shows_alpha_fields=True,
    has_taint_rules_in_v1=True,
    selects_by_pool=True,
    has_taint_rules_in_v1beta2=True,
    checks_claim_writers=True,
    reads_patches_first=True,
    negotiates_custom_lists_first=True,
    explains_empty_names=False,
    fails_on_delete_options=False,
    rules_tell_values=True,
    lists_versions=True,
    owns_metadata_by_status=False,
    owns_custom_metadata_by_status=False,
    fills_max_unavailable=True,
    fills_missing_drivers=True,
    counts_autoscalers=True,
    scales_to_zero=True,
    keeps_owners_of_untyped=True,
    warns_of_sets=True,
    relaxes_service_names=True,
    checks_bound_nodes=True,
    keeps_claims_of_pods=True,
    has_uniform_words=True,
    warns_of_external_addresses=True,
    warns_of_tokens=True,
    warns_of_close_traffic=True,
    is_strict_about_ranges=True,
    completes_pod_resources=True,
    has_all_fields=True,
)

# the older ones: what they do otherwise than the one after them
_1_36 = replace(
    _1_37,
    version="1.36",
    patch=3,
    has_declared_rules=False,
    checks_allocated_tolerations=False,
    bounds_steps=False,
    trusts_stored=False,
    has_newer_metadata_rules=False,
    shows_alpha_fields=False,
    has_taint_rules_in_v1=False,
    selects_by_pool=False,
    reads_patches_first=False,
    lists_versions=False,
    fills_max_unavailable=False,
    fills_missing_drivers=False,
    counts_autoscalers=False,
    scales_to_zero=False,
    keeps_owners_of_untyped=False,
    warns_of_sets=False,
    checks_bound_nodes=False,
    keeps_claims_of_pods=False,
    completes_pod_resources=False,
)

_1_35 = replace(
    _1_36,
    version="1.35",
    patch=4,
    has_taint_rules_in_v1beta2=False,
    checks_claim_writers=False,
    negotiates_custom_lists_first=False,
    owns_custom_metadata_by_status=True,
    relaxes_service_names=False,
    has_uniform_words=False,
    warns_of_external_addresses=False,
    is_strict_about_ranges=False,
    has_all_fields=False,
)

_1_34 = replace(
    _1_35,
    version="1.34",
    checks_changed_as_new=False,
    explains_empty_names=True,
    fails_on_delete_options=True,
    rules_tell_values=False,
    owns_metadata_by_status=True,
    warns_of_tokens=False,
    warns_of_close_traffic=False,
)

RELEASES: Mapping[str, Release] = MappingProxyType({each.version: each for each in (_1_34, _1_35, _1_36, _1_37)})
DEFAULT_VERSION: Version = "1.37"
LATEST = RELEASES[DEFAULT_VERSION]
