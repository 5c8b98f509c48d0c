"""The table of the kinds that are stored and returned, see `auxiliary`.

Source: k8s.io/api; the registries of k8s.io/kubernetes for what a kind's requests do.
"""

from collections.abc import Callable
from typing import NamedTuple

from controlplane.apiserver import columns
from controlplane.apiserver.admission import GROUP
from controlplane.apiserver.kinds import Column
from resourceapi.objects.release import Release


class Row(NamedTuple):
    """A kind, and how it is served."""

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
    is_served: Callable[[Release], bool] = lambda _: True
    has_status: Callable[[Release], bool] = lambda _: True  # if the kind has one at all
    hides_name: bool = False  # the columns include the name
    hashed_as: str = ""  # the group and version that the hash of the stored version is made from


ROWS = (
    Row(
        "",
        "Endpoints",
        "Where pods of a service are.",
        short=("ep",),
        creates_on_update=True,
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    Row("", "LimitRange", "What pods of a namespace may ask for.", short=("limits",), creates_on_update=True),
    Row("", "PersistentVolume", "Storage of the cluster.", namespaced=False, status=True, short=("pv",), deletes=True),
    Row("", "PersistentVolumeClaim", "A request for storage.", status=True, short=("pvc",), deletes=True),
    Row("", "PodTemplate", "A pod to be made.", counts_generations=True, creates_on_update=True),
    Row("", "ResourceQuota", "What a namespace may use up.", status=True, short=("quota",), deletes=True),
    Row(
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
    Row(
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
    Row("", "ServiceAccount", "Who a pod is.", short=("sa",), deletes=True),
    *(
        Row(
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
    Row(
        "apiregistration.k8s.io",
        "APIService",
        "A server for a group of the API, which this server does not call.",
        namespaced=False,
        status=True,
        must_be_current=True,
        categories=("api-extensions",),
    ),
    Row("apps", "ControllerRevision", "What a controller's pods were made from."),
    Row(
        "apps",
        "DaemonSet",
        "A pod on each node.",
        shown=columns.DAEMON_SET,
        status=True,
        counts_generations=True,
        short=("ds",),
        in_all=True,
    ),
    Row(
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
    Row(
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
    Row(
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
    Row(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "How many copies a load needs.",
        version="v2",
        status=True,
        short=("hpa",),
        in_all=True,
    ),
    Row(
        "batch",
        "CronJob",
        "Jobs at given times.",
        status=True,
        counts_generations=True,
        short=("cj",),
        in_all=True,
    ),
    Row("batch", "Job", "Pods that end.", status=True, counts_generations=True, in_all=True, orphans=True),
    Row(
        "coordination.k8s.io",
        "Lease",
        "Who leads, or is alive.",
        creates_on_update=True,
        must_be_current=True,
        shown=columns.LEASE,
    ),
    Row(
        "discovery.k8s.io",
        "EndpointSlice",
        "Some of a service's pods.",
        counts_generations=True,
        creates_on_update=True,
    ),
    *(
        Row(
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
    Row(
        "networking.k8s.io",
        "IPAddress",
        "An address that something, mostly a service, has.",
        namespaced=False,
        short=("ip",),
    ),
    Row("networking.k8s.io", "Ingress", "A way into services.", status=True, counts_generations=True, short=("ing",)),
    Row("networking.k8s.io", "IngressClass", "Who makes the way.", namespaced=False, counts_generations=True),
    Row("networking.k8s.io", "ServiceCIDR", "A range of services' addresses.", namespaced=False, status=True),
    Row("networking.k8s.io", "NetworkPolicy", "Who talks to pods.", counts_generations=True, short=("netpol",)),
    Row(
        "node.k8s.io",
        "RuntimeClass",
        "How containers are run.",
        shown=columns.RUNTIME_CLASS,
        namespaced=False,
        creates_on_update=True,
        must_be_current=True,
    ),
    Row(
        "policy",
        "PodDisruptionBudget",
        "How many pods may be away.",
        status=True,
        counts_generations=True,
        short=("pdb",),
        must_be_current=True,
    ),
    Row(
        "rbac.authorization.k8s.io",
        "ClusterRole",
        "What may be done.",
        shown=columns.CREATED_AT,
        namespaced=False,
        creates_on_update=True,
    ),
    Row(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        "Who may do it.",
        shown=columns.ROLE_BINDING,
        namespaced=False,
        creates_on_update=True,
    ),
    Row(
        "rbac.authorization.k8s.io",
        "Role",
        "What may be done in a namespace.",
        shown=columns.CREATED_AT,
        creates_on_update=True,
    ),
    Row(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        "Who may do it in a namespace.",
        shown=columns.ROLE_BINDING,
        creates_on_update=True,
    ),
    Row(
        "scheduling.k8s.io",
        "PriorityClass",
        "Which pods go first.",
        shown=columns.PRIORITY_CLASS,
        namespaced=False,
        short=("pc",),
    ),
    Row("storage.k8s.io", "CSIDriver", "A driver for storage.", namespaced=False, must_be_current=True),
    Row(
        "storage.k8s.io",
        "CSINode",
        "The storage drivers of a node.",
        namespaced=False,
        status=True,
        has_status=lambda release: release.has_storage_health,
        must_be_current=True,
    ),
    Row("storage.k8s.io", "CSIStorageCapacity", "How much storage is left.", must_be_current=True),
    Row(
        "storage.k8s.io",
        "StorageClass",
        "A kind of storage.",
        shown=columns.STORAGE_CLASS,
        namespaced=False,
        short=("sc",),
    ),
    Row(
        "storage.k8s.io",
        "VolumeAttachment",
        "A volume on a node.",
        namespaced=False,
        status=True,
        must_be_current=True,
    ),
    Row("storage.k8s.io", "VolumeAttributesClass", "How fast storage is.", namespaced=False, short=("vac",)),
    Row(
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        "A resource whose objects are to be stored in its newest version.",
        namespaced=False,
        status=True,
        must_be_current=True,
        hides_name=True,
        hashed_as="storagemigration.k8s.io/v1beta1",
        is_served=lambda release: release.has_storage_migrations,
    ),
)
"""The kinds, by group."""
