"""Kinds that components and manifests need, and on which no controller acts here: checked, stored and returned.

The informers of kube-scheduler, a kubelet and a controller manager start only when each of their lists is answered, and
charts of drivers contain accounts, roles and DaemonSets. A Deployment makes no pods. Some kinds affect other writes:
roles if the server checks them (`access.authorization`), policies (`admission`), quotas (`quotas`), limit ranges
(`limit_ranges`), priority classes and runtime classes (`pods.admission`). Source: the requests of these components,
k8s.io/api.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from controlplane.apiserver import columns
from controlplane.apiserver.admission import GROUP
from controlplane.apiserver.autoscalers import with_first_version
from controlplane.apiserver.auxiliary_columns import COLUMNS_BY_KIND
from controlplane.apiserver.auxiliary_table import ROWS, Row
from controlplane.apiserver.kinds import Kind, Plain, ScalePaths
from controlplane.apiserver.rules import (
    address_rules,
    auxiliary_rules,
    auxiliary_warnings,
    core_rules,
    endpoint_rules,
    quota_rules,
    role_rules,
    runtime_rules,
    service_defaults,
    storage_rules,
    traffic_rules,
    webhook_rules,
    workload_defaults,
    workload_rules,
    workload_status_rules,
)
from controlplane.apiserver.rules.autoscaler_rules import check_autoscaler, check_autoscaler_status
from controlplane.apiserver.rules.claim_rules import check_claim, check_claim_status
from controlplane.apiserver.rules.job_rules import check_job_status
from controlplane.apiserver.rules.migration_rules import check_migration, check_migration_status
from controlplane.apiserver.rules.mutation_rules import check_mutating_binding, check_mutating_policy
from controlplane.apiserver.rules.policy_rules import check_binding, check_policy
from controlplane.apiserver.rules.quota_rules import check_quota_status, named_limits
from controlplane.apiserver.rules.service_rules import check_service, check_service_status, without_other_types_fields
from controlplane.apiserver.rules.storage_rules import with_driver_generation
from controlplane.apiserver.rules.traffic_rules import check_ingress_status
from controlplane.apiserver.rules.volume_rules import accept_any_status, check_volume, with_phase_time
from controlplane.apiserver.unstructured_kinds import unstructured_kind
from controlplane.apiserver.unstructured_rules import Advance, Check, Part, as_written
from resourceapi.objects.names import dns_1035_label, dns_label, path_segment
from resourceapi.objects.release import Release

_SCALE = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")
_AUTOSCALER = "HorizontalPodAutoscaler"
_COORDINATED_ELECTION_FIELDS = ("strategy", "preferredHolder")


def auxiliary_kinds(release: Release, clock: Callable[[], datetime]) -> Iterator[Kind]:
    """Return the kinds of the table, as a release has them. `clock` returns the time for timestamps."""
    fills = {**service_defaults.defaulters(release), **workload_defaults.defaulters(release)}
    if not release.has_storage_health:
        fills["CSINode"] = _without_status
    rules = (
        address_rules,
        auxiliary_rules,
        endpoint_rules,
        role_rules,
        runtime_rules,
        storage_rules,
        traffic_rules,
        workload_rules,
    )
    checks = {kind: check for each in rules for kind, check in each.checks(release).items()}
    checks |= {**core_rules.CHECKS, **quota_rules.CHECKS, **webhook_rules.CHECKS}
    checks |= {
        _AUTOSCALER: partial(check_autoscaler, release=release),
        "PersistentVolume": partial(check_volume, release=release),
        "PersistentVolumeClaim": check_claim,
        "Service": check_service,
        "StorageVersionMigration": check_migration,
    }
    advances: dict[str, Advance] = {
        "LimitRange": named_limits,
        **workload_defaults.ADVANCES,
        "CSIDriver": with_driver_generation,
        "PersistentVolume": partial(with_phase_time, clock=clock),
        "Service": without_other_types_fields,
    }
    of_statuses: dict[str, Check] = {
        **workload_status_rules.CHECKS,
        _AUTOSCALER: check_autoscaler_status,
        "Ingress": check_ingress_status,
        "Job": check_job_status,
        "PersistentVolumeClaim": check_claim_status,
        "ResourceQuota": check_quota_status,
        "Service": check_service_status,
        "StorageVersionMigration": partial(check_migration_status, release=release),
    }
    status_parts = {kind: Part(as_written, check) for kind, check in of_statuses.items()}
    status_parts["CSINode"] = Part(_without_health, accept_any_status)
    status_parts["PersistentVolume"] = Part(partial(with_phase_time, clock=clock), accept_any_status)
    drops = {**workload_defaults.droppers(release), "Lease": _without_election}
    warns = auxiliary_warnings.warning_functions(release)
    counted = (_AUTOSCALER,) if release.counts_autoscalers else ()
    for row in (each for each in ROWS if each.is_served(release)):
        kind = unstructured_kind(
            row.kind,
            _plural(row.kind),
            row.description,
            row.shown or COLUMNS_BY_KIND.get(row.kind, columns.ONLY_AGE),
            group=row.group,
            version=row.version,
            scale=_SCALE if row.scales else None,
            deprecation=row.deprecation,
            fill=fills.get(row.kind, _as_decoded) if row.kind != _AUTOSCALER else _as_decoded,
            check=checks.get(row.kind),
            drop=drops.get(row.kind),
            warn=warns.get(row.kind),
            advance=advances.get(row.kind),
            status_part=status_parts.get(row.kind),
            put_back=service_defaults.PUT_BACK.get(row.kind),
            creates_on_update=row.creates_on_update,
            must_be_current=row.must_be_current,
            short=row.short,
            categories=("all",) if row.in_all else row.categories,
            namespaced=row.namespaced,
            status=row.status and row.has_status(release),
            counts_generations=row.counts_generations or row.kind in counted,
            deletes=row.deletes or row.group == "storage.k8s.io",
            fields={path: columns.at(*path.split(".")) for path in row.selects},
            name_rule=_name_rule(row, release),
            orphans=row.orphans,
            hides_name=row.hides_name,
            hashed_as=row.hashed_as,
        )
        yield with_first_version(kind, fills[row.kind]) if row.kind == _AUTOSCALER else kind


def policy_kinds(release: Release) -> Iterator[Kind]:
    """Return admission policies, whose expressions are compiled when they are written, and their bindings."""
    of_bindings = service_defaults.with_binding_defaults
    kinds: list[tuple[str, str, Check, Callable[[Plain], Plain]]] = [
        ("ValidatingAdmissionPolicy", "What writes must be.", check_policy, service_defaults.with_policy_defaults),
        (
            "ValidatingAdmissionPolicyBinding",
            "Where a policy counts.",
            partial(check_binding, release=release),
            of_bindings,
        ),
    ]
    if release.has_mutating_policies:
        kinds += [
            (
                "MutatingAdmissionPolicy",
                "How writes are changed.",
                check_mutating_policy,
                service_defaults.with_policy_defaults,
            ),
            ("MutatingAdmissionPolicyBinding", "Where such a policy counts.", check_mutating_binding, of_bindings),
        ]
    for kind, description, check, fill in kinds:
        yield unstructured_kind(
            kind,
            _plural(kind),
            description,
            COLUMNS_BY_KIND[kind],
            group=GROUP,
            namespaced=False,
            status=check is check_policy,
            counts_generations=True,
            check=check,
            fill=fill,
            must_be_current=True,
            categories=("api-extensions",),
            hashed_as=f"{GROUP}/v1beta1" if kind.startswith("Mutating") and release.stores_beta_policies else "",
        )


def _as_decoded(obj: Plain) -> Plain:
    """An object of a kind without defaults."""
    return obj


def _without_election(lease: Plain) -> Plain:
    """A lease without the fields of coordinated elections (CoordinatedLeaderElection), off in every release."""
    return {
        **lease,
        "spec": {name: item for name, item in lease["spec"].items() if name not in _COORDINATED_ELECTION_FIELDS},
    }


def _without_health(node: Plain, old: Plain) -> Plain:
    """A CSINode without the health of its storage (CSIVolumeHealth), off in every release."""
    del old
    return {**node, "status": {}}


def _without_status(node: Plain) -> Plain:
    """A CSINode without a status, for releases before its status existed."""
    return {name: item for name, item in node.items() if name != "status"}


def _name_rule(row: Row, release: Release) -> Callable[[str], list[str]] | None:
    if row.group == "rbac.authorization.k8s.io":
        return path_segment
    if row.kind == "IPAddress":
        return address_rules.address_name
    if row.kind == "StatefulSet":
        return dns_label
    if row.kind == "Service":
        return dns_label if release.relaxes_service_names else dns_1035_label
    return None


def _plural(kind: str) -> str:
    lower = kind.lower()
    if lower == "endpoints":
        return lower
    if lower.endswith("ss"):
        return f"{lower}es"
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
