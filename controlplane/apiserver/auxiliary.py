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
from typing import NamedTuple

from controlplane.apiserver import columns
from controlplane.apiserver.admission import GROUP
from controlplane.apiserver.auxiliary_columns import COLUMNS_BY_KIND
from controlplane.apiserver.kinds import Column, Kind, Plain, ScalePaths
from controlplane.apiserver.open_kinds import open_kind
from controlplane.apiserver.open_rules import Advance, Part, as_written
from controlplane.apiserver.rules import (
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
from controlplane.apiserver.rules.policy_rules import check_binding, check_policy
from controlplane.apiserver.rules.quota_rules import check_quota_status, named_limits
from controlplane.apiserver.rules.service_rules import check_service, check_service_status, without_other_types_fields
from controlplane.apiserver.rules.storage_rules import with_driver_generation
from controlplane.apiserver.rules.traffic_rules import check_ingress_status
from controlplane.apiserver.rules.volume_rules import accept_any_status, check_volume, with_phase_time
from resourceapi.objects.names import dns_1035_label, dns_label, path_segment
from resourceapi.objects.release import Release


class _Row(NamedTuple):
    group: str
    kind: str
    description: str
    version: str = "v1"
    namespaced: bool = True
    status: bool = False
    counts_generations: bool = False
    short: tuple[str, ...] = ()
    in_all: bool = False  # listed by `kubectl get all`
    categories: tuple[str, ...] = ()  # other categories
    scales: bool = False  # has a number of replicas, and so a Scale
    deletes: bool = False  # a delete returns the object
    orphans: bool = False  # dependents stay, unless the delete has another policy
    selects: tuple[str, ...] = ()  # fields for field selectors
    creates_on_update: bool = False  # a PUT creates a missing object
    must_be_current: bool = False  # an update must name the version of the object
    shown: tuple[Column, ...] = ()  # otherwise those of `auxiliary_columns`, or only the age
    deprecation: str = ""  # a warning to every client that uses the kind


_SCALE = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")
_ROWS = (
    _Row(
        "",
        "Endpoints",
        "Where pods of a service are.",
        short=("ep",),
        creates_on_update=True,
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    _Row("", "LimitRange", "What pods of a namespace may ask for.", short=("limits",), creates_on_update=True),
    _Row("", "PersistentVolume", "Storage of the cluster.", namespaced=False, status=True, short=("pv",), deletes=True),
    _Row("", "PersistentVolumeClaim", "A request for storage.", status=True, short=("pvc",), deletes=True),
    _Row("", "PodTemplate", "A pod to be made.", counts_generations=True, creates_on_update=True),
    _Row("", "ResourceQuota", "What a namespace may use up.", status=True, short=("quota",), deletes=True),
    _Row(
        "",
        "ReplicationController",
        "Copies of a pod.",
        shown=columns.REPLICATION_CONTROLLER,
        scales=True,
        status=True,
        counts_generations=True,
        short=("rc",),
        in_all=True,
        orphans=True,
    ),
    _Row(
        "",
        "Service",
        "An address for pods.",
        shown=columns.SERVICE,
        status=True,
        short=("svc",),
        in_all=True,
        deletes=True,
        creates_on_update=True,
        selects=("spec.clusterIP", "spec.type"),  # a kubelet lists the services that have an address
    ),
    _Row("", "ServiceAccount", "Who a pod is.", short=("sa",), deletes=True),
    *(
        _Row(
            GROUP,
            kind,
            "Webhooks for admission, which this server does not call.",
            namespaced=False,
            counts_generations=True,
            must_be_current=True,
            categories=("api-extensions",),
        )
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ),
    _Row(
        "apiregistration.k8s.io",
        "APIService",
        "A server for a group of the API, which this server does not call.",
        namespaced=False,
        status=True,
        must_be_current=True,
        categories=("api-extensions",),
    ),
    _Row("apps", "ControllerRevision", "What a controller's pods were made from."),
    _Row(
        "apps",
        "DaemonSet",
        "A pod on each node.",
        shown=columns.DAEMON_SET,
        status=True,
        counts_generations=True,
        short=("ds",),
        in_all=True,
    ),
    _Row(
        "apps",
        "Deployment",
        "Copies of a pod, and how they are replaced.",
        shown=columns.DEPLOYMENT,
        scales=True,
        status=True,
        counts_generations=True,
        short=("deploy",),
        in_all=True,
    ),
    _Row(
        "apps",
        "ReplicaSet",
        "Copies of a pod.",
        shown=columns.REPLICA_SET,
        scales=True,
        status=True,
        counts_generations=True,
        short=("rs",),
        in_all=True,
    ),
    _Row(
        "apps",
        "StatefulSet",
        "Copies of a pod that keep their names.",
        shown=columns.STATEFUL_SET,
        scales=True,
        status=True,
        counts_generations=True,
        short=("sts",),
        in_all=True,
    ),
    _Row(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "How many copies a load needs.",
        version="v2",
        status=True,
        short=("hpa",),
        in_all=True,
    ),
    _Row(
        "batch",
        "CronJob",
        "Jobs at given times.",
        status=True,
        counts_generations=True,
        short=("cj",),
        in_all=True,
    ),
    _Row("batch", "Job", "Pods that end.", status=True, counts_generations=True, in_all=True, orphans=True),
    _Row(
        "coordination.k8s.io",
        "Lease",
        "Who leads, or is alive.",
        creates_on_update=True,
        must_be_current=True,
        shown=columns.LEASE,
    ),
    _Row(
        "discovery.k8s.io",
        "EndpointSlice",
        "Some of a service's pods.",
        counts_generations=True,
        creates_on_update=True,
    ),
    *(
        _Row(
            "flowcontrol.apiserver.k8s.io",
            kind,
            description,
            namespaced=False,
            status=True,
            counts_generations=True,
        )
        for kind, description in (
            ("FlowSchema", "Which requests have a priority."),
            ("PriorityLevelConfiguration", "How many requests of a priority are served at once."),
        )
    ),
    _Row("networking.k8s.io", "Ingress", "A way into services.", status=True, counts_generations=True, short=("ing",)),
    _Row("networking.k8s.io", "IngressClass", "Who makes the way.", namespaced=False, counts_generations=True),
    _Row("networking.k8s.io", "NetworkPolicy", "Who talks to pods.", counts_generations=True, short=("netpol",)),
    _Row(
        "node.k8s.io",
        "RuntimeClass",
        "How containers are run.",
        shown=columns.RUNTIME_CLASS,
        namespaced=False,
        creates_on_update=True,
        must_be_current=True,
    ),
    _Row(
        "policy",
        "PodDisruptionBudget",
        "How many pods may be away.",
        status=True,
        counts_generations=True,
        short=("pdb",),
        must_be_current=True,
    ),
    _Row(
        "rbac.authorization.k8s.io",
        "ClusterRole",
        "What may be done.",
        shown=columns.CREATED_AT,
        namespaced=False,
        creates_on_update=True,
    ),
    _Row(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        "Who may do it.",
        shown=columns.ROLE_BINDING,
        namespaced=False,
        creates_on_update=True,
    ),
    _Row(
        "rbac.authorization.k8s.io",
        "Role",
        "What may be done in a namespace.",
        shown=columns.CREATED_AT,
        creates_on_update=True,
    ),
    _Row(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        "Who may do it in a namespace.",
        shown=columns.ROLE_BINDING,
        creates_on_update=True,
    ),
    _Row(
        "scheduling.k8s.io",
        "PriorityClass",
        "Which pods go first.",
        shown=columns.PRIORITY_CLASS,
        namespaced=False,
        short=("pc",),
    ),
    _Row("storage.k8s.io", "CSIDriver", "A driver for storage.", namespaced=False, must_be_current=True),
    _Row("storage.k8s.io", "CSINode", "The storage drivers of a node.", namespaced=False, must_be_current=True),
    _Row("storage.k8s.io", "CSIStorageCapacity", "How much storage is left.", must_be_current=True),
    _Row(
        "storage.k8s.io",
        "StorageClass",
        "A kind of storage.",
        shown=columns.STORAGE_CLASS,
        namespaced=False,
        short=("sc",),
    ),
    _Row(
        "storage.k8s.io",
        "VolumeAttachment",
        "A volume on a node.",
        namespaced=False,
        status=True,
        must_be_current=True,
    ),
    _Row("storage.k8s.io", "VolumeAttributesClass", "How fast storage is.", namespaced=False, short=("vac",)),
)


_COORDINATED_ELECTION_FIELDS = ("strategy", "preferredHolder")


def auxiliary_kinds(release: Release, clock: Callable[[], datetime]) -> Iterator[Kind]:
    """Return the kinds of the table, as a release has them. `clock` returns the time for timestamps."""
    fills = {**service_defaults.defaulters(release), **workload_defaults.defaulters(release)}
    if not release.has_declared_rules:
        fills["CSINode"] = _without_status
    rules = (
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
        "HorizontalPodAutoscaler": partial(check_autoscaler, release=release),
        "PersistentVolume": partial(check_volume, release=release),
        "PersistentVolumeClaim": check_claim,
        "Service": check_service,
    }
    advances: dict[str, Advance] = {
        "LimitRange": named_limits,
        **workload_defaults.ADVANCES,
        "CSIDriver": with_driver_generation,
        "PersistentVolume": partial(with_phase_time, clock=clock),
        "Service": without_other_types_fields,
    }
    of_statuses = {
        **workload_status_rules.CHECKS,
        "HorizontalPodAutoscaler": check_autoscaler_status,
        "Ingress": check_ingress_status,
        "Job": check_job_status,
        "PersistentVolumeClaim": check_claim_status,
        "ResourceQuota": check_quota_status,
        "Service": check_service_status,
    }
    status_parts = {kind: Part(as_written, check) for kind, check in of_statuses.items()}
    status_parts["PersistentVolume"] = Part(partial(with_phase_time, clock=clock), accept_any_status)
    drops = {**workload_defaults.droppers(release), "Lease": _without_election}
    warns = auxiliary_warnings.warning_functions(release)
    counted = ("HorizontalPodAutoscaler",) if release.counts_autoscalers else ()
    for row in _ROWS:
        yield open_kind(
            row.kind,
            _plural(row.kind),
            row.description,
            row.shown or COLUMNS_BY_KIND.get(row.kind, columns.ONLY_AGE),
            group=row.group,
            version=row.version,
            scale=_SCALE if row.scales else None,
            deprecation=row.deprecation,
            fill=fills.get(row.kind, lambda obj: obj),
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
            status=row.status,
            counts_generations=row.counts_generations or row.kind in counted,
            deletes=row.deletes or row.group == "storage.k8s.io",
            fields={path: columns.at(*path.split(".")) for path in row.selects},
            name_rule=_name_rule(row, release),
            orphans=row.orphans,
        )


def policy_kinds(release: Release) -> Iterator[Kind]:
    """Return admission policies, whose expressions are compiled when they are written, and their bindings."""
    for kind, description, check, fill in (
        ("ValidatingAdmissionPolicy", "What writes must be.", check_policy, service_defaults.with_policy_defaults),
        (
            "ValidatingAdmissionPolicyBinding",
            "Where a policy counts.",
            partial(check_binding, release=release),
            service_defaults.with_binding_defaults,
        ),
    ):
        yield open_kind(
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
        )


def _without_election(lease: Plain) -> Plain:
    """A lease without the fields of coordinated elections (CoordinatedLeaderElection), off in every release."""
    return {
        **lease,
        "spec": {name: item for name, item in lease["spec"].items() if name not in _COORDINATED_ELECTION_FIELDS},
    }


def _without_status(node: Plain) -> Plain:
    """A CSINode without a status, for releases before its status existed."""
    return {name: item for name, item in node.items() if name != "status"}


def _name_rule(row: _Row, release: Release) -> Callable[[str], list[str]] | None:
    if row.group == "rbac.authorization.k8s.io":
        return path_segment
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
