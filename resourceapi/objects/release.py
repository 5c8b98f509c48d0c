"""The differences between Kubernetes releases that the API's rules depend on, in one place.

The rules ask a `Release` for a named fact and never compare versions. Refusals of 1.34 and 1.35 use the wording of
1.36. Patch releases: 1.34.4, 1.35.4, 1.36.3 and 1.37.1. Source: changes-1.37, sections 3 and 6; the releases'
validation code for what those sections do not cover.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Version = Literal["1.34", "1.35", "1.36", "1.37"]


class Release(Struct, frozen=True, kw_only=True):
    """A release with its default feature gates."""

    version: Version
    patch: int
    """The patch number of the release whose answers were recorded."""

    has_declared_rules: bool
    """The rules that the API's types declare are checked last, with messages of their own (`declared_rules`)."""
    checks_allocated_tolerations: bool
    """Tolerations in an allocation result are checked like those of a request."""
    checks_changed_as_new: bool
    """An update of a class or claim must have metadata that would be valid for a new object."""
    limits_capacity_steps: bool
    """A capacity's step must be positive, and all values of a range with a step must fit 64 bits.

    Errors about the default use the default's own path.
    """
    skips_unchanged_values: bool
    """Unchanged capacities and stored expressions are not checked again."""
    has_newer_metadata_rules: bool
    """Paths of owner references have an index; a missing part of metadata or conditions is Required, not Invalid."""
    shows_alpha_fields: bool
    """Errors show a refused value with the alpha fields of 1.37."""
    has_taint_rules_in_v1: bool
    """DeviceTaintRule is also served as v1."""
    selects_by_pool: bool
    """Slices can be selected by `spec.pool.name`."""
    has_taint_rules_in_v1beta2: bool
    """DeviceTaintRule is served as v1beta2, beside v1alpha3."""
    checks_claim_writers: bool
    """A writer of a claim's status needs permission for the changed part: `resourceclaims/binding` or `/driver`."""
    decodes_patches_first: bool
    """A patch that is not JSON is refused before the object is read.

    Errors about an apply configuration call it a patch, not YAML.
    """
    negotiates_custom_lists_first: bool
    """A list of custom resources checks the Accept header before the list options."""
    explains_empty_driver_names: bool
    """An empty driver name gets the error about its format in addition to Required."""
    fails_on_delete_options: bool
    """A deletion whose body is not DeleteOptions gets status 500."""
    rule_errors_show_values: bool
    """Errors about a custom resource's CEL rule show the plain value, not its type."""
    lists_versions: bool
    """`kubectl get crd` also shows scope and versions."""
    owns_metadata_by_status: bool
    """A status writer becomes the field owner of the request's metadata, although it is not stored."""
    owns_custom_metadata_by_status: bool
    """The same for the status of a custom resource."""
    fills_max_unavailable: bool
    """A StatefulSet's `maxUnavailable` of a rolling update defaults to 1."""
    fills_missing_drivers: bool
    """A CSIDriver's `preventPodSchedulingIfMissing` defaults to false."""
    counts_autoscalers: bool
    """A HorizontalPodAutoscaler has a generation."""
    scales_to_zero: bool
    """A HorizontalPodAutoscaler can have `minReplicas` 0."""
    keeps_owners_of_untyped: bool
    """An update whose fields cannot be tracked keeps `managedFields`; older releases drop them."""
    warns_of_sets: bool
    """The definition of a set of objects or of lists causes a warning."""
    relaxes_service_names: bool
    """A Service's name can begin with a digit."""
    checks_bound_nodes: bool
    """A Binding's node name must be a valid name."""
    keeps_claims_of_pods: bool
    """A pod's status keeps its claim statuses if a writer leaves them out."""
    has_uniform_messages: bool
    """The standard messages apply to a priority level's missing type and a storage class's immutable provisioner."""
    warns_of_external_addresses: bool
    """A Service with `externalIPs` causes a warning."""
    warns_of_tokens: bool
    """A CSIDriver with `tokenRequests` but without `serviceAccountTokenInSecrets` causes a warning."""
    warns_of_close_traffic: bool
    """A Service with `trafficDistribution: PreferClose` causes a warning that names `PreferSameZone`."""
    is_strict_about_ranges: bool
    """A CIDR must not have bits set beyond the prefix length."""
    completes_pod_resources: bool
    """Missing pod-level resources are filled in from those of the containers."""
    has_all_fields: bool
    """The features of 1.36 are enabled; older releases drop their fields (`disabled_fields`)."""
    has_mutating_policies: bool
    """MutatingAdmissionPolicies and their bindings are served."""
    stores_beta_policies: bool
    """These are stored as v1beta1, which the hash of their stored version shows."""
    has_pod_certificates: bool
    """ClusterTrustBundles and PodCertificateRequests are served."""
    has_storage_migrations: bool
    """StorageVersionMigrations are served."""
    has_storage_health: bool
    """A CSINode has a status."""

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
    limits_capacity_steps=True,
    skips_unchanged_values=True,
    has_newer_metadata_rules=True,
    shows_alpha_fields=True,
    has_taint_rules_in_v1=True,
    selects_by_pool=True,
    has_taint_rules_in_v1beta2=True,
    checks_claim_writers=True,
    decodes_patches_first=True,
    negotiates_custom_lists_first=True,
    explains_empty_driver_names=False,
    fails_on_delete_options=False,
    rule_errors_show_values=True,
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
    has_uniform_messages=True,
    warns_of_external_addresses=True,
    warns_of_tokens=True,
    warns_of_close_traffic=True,
    is_strict_about_ranges=True,
    completes_pod_resources=True,
    has_all_fields=True,
    has_mutating_policies=True,
    stores_beta_policies=False,
    has_pod_certificates=True,
    has_storage_migrations=True,
    has_storage_health=True,
)

# Each older release lists its differences from the next newer one.
_1_36 = replace(
    _1_37,
    version="1.36",
    patch=3,
    has_declared_rules=False,
    checks_allocated_tolerations=False,
    limits_capacity_steps=False,
    skips_unchanged_values=False,
    has_newer_metadata_rules=False,
    shows_alpha_fields=False,
    has_taint_rules_in_v1=False,
    selects_by_pool=False,
    decodes_patches_first=False,
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
    stores_beta_policies=True,
    has_pod_certificates=False,
    has_storage_migrations=False,
    has_storage_health=False,
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
    has_uniform_messages=False,
    warns_of_external_addresses=False,
    is_strict_about_ranges=False,
    has_all_fields=False,
    has_mutating_policies=False,
)

_1_34 = replace(
    _1_35,
    version="1.34",
    checks_changed_as_new=False,
    explains_empty_driver_names=True,
    fails_on_delete_options=True,
    rule_errors_show_values=False,
    owns_metadata_by_status=True,
    warns_of_tokens=False,
    warns_of_close_traffic=False,
)

RELEASES: Mapping[str, Release] = MappingProxyType({each.version: each for each in (_1_34, _1_35, _1_36, _1_37)})
DEFAULT_VERSION: Version = "1.37"
LATEST = RELEASES[DEFAULT_VERSION]
