"""The built-in kinds: resource.k8s.io, the part of core/v1 around it, and definitions.

An explicit table; `install` adds it to a registry.
"""

import base64
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from controlplane.apiserver import columns
from controlplane.apiserver.access.authorization import Authorizer
from controlplane.apiserver.access.certificates import certificates_kind
from controlplane.apiserver.access.pod_certificates import pod_certificate_kind, trust_bundle_kind
from controlplane.apiserver.auxiliary import auxiliary_kinds, policy_kinds
from controlplane.apiserver.definitions.custom_kinds import definition_kind
from controlplane.apiserver.events import events_kind
from controlplane.apiserver.finalizers import NAMESPACE_FINALIZER
from controlplane.apiserver.kinds import Kind, Plain, Registry, Served
from controlplane.apiserver.pods.admission import with_priority_and_tolerations
from controlplane.apiserver.pods.changes import check_pod
from controlplane.apiserver.pods.defaults import with_addresses_in_sync, with_pod_defaults
from controlplane.apiserver.pods.features import without_disabled
from controlplane.apiserver.pods.parts import PARTS
from controlplane.apiserver.pods.spec_rules import check_node
from controlplane.apiserver.pods.status_rules import status_part
from controlplane.apiserver.pods.warnings import pod_warnings
from controlplane.apiserver.rules.core_rules import check_config_map, check_secret
from controlplane.apiserver.rules.event_rules import check_event
from controlplane.apiserver.rules.service_defaults import with_node_defaults
from controlplane.apiserver.typed_rules import TypedRules
from controlplane.apiserver.unstructured_kinds import unstructured_kind
from controlplane.apiserver.unstructured_rules import Part, as_written
from resourceapi.objects import ErrorList, KubernetesObject, v1, v1beta1
from resourceapi.objects.errors import Token
from resourceapi.objects.field_rules import label_name
from resourceapi.objects.names import dns_label
from resourceapi.objects.release import Release
from resourceapi.objects.schemas import schema_of

_DEPRECATED = {"v1alpha3": 36, "v1beta1": 35, "v1beta2": 36}  # version -> minor release in which it became deprecated
_NEW = {"DeviceTaintRule"}  # before 1.37 it has no version after v1beta2, so that is not deprecated
_PROTOTYPE_FIELDS = frozenset(("spec.deviceClaims", "spec.containers.devices", "spec.initContainers.devices"))


def install(
    registry: Registry,
    clock: Callable[[], datetime],
    has_admin_access: Callable[[str], bool],
    release: Release,
    authorizer: Authorizer,
) -> None:
    """Add the built-in kinds as a release has them.

    `has_admin_access` returns whether claims in a namespace can have admin access. `authorizer` decides who can write
    claims.
    """
    for kind in (*_core(release), *auxiliary_kinds(release, clock), *policy_kinds(release)):
        registry.add(kind)
    registry.add(definition_kind(release))
    registry.add(certificates_kind(clock, authorizer))
    if release.has_pod_certificates:
        registry.add(trust_bundle_kind(authorizer))
        registry.add(pod_certificate_kind(clock, authorizer, release))

    def typed(form: type[KubernetesObject], plural: str, beta1: type[KubernetesObject] | None, **more: Any) -> None:
        rules = TypedRules(form, clock, has_admin_access, authorizer)
        versions = ["v1", "v1beta2", "v1beta1"] if beta1 else _taint_rule_versions(release)
        served = tuple(
            Served(
                version,
                schema_of(beta1 if version == "v1beta1" and beta1 else form),
                _deprecation(form.KIND, version, release),
                must_be_current=form.KIND in _NEW and version == "v1",
                deletes_silently=form.KIND in _NEW and version == "v1",
            )
            for version in versions
        )
        registry.add(
            Kind(
                group=v1.GROUP,
                plural=plural,
                kind=form.KIND,
                versions=served,
                storage="v1",
                rules=rules,
                delete_returns_object=True,
                has_status_table=False,
                hashed_as="resource.k8s.io/v1beta2" if form.KIND in _NEW else "",
                **more,
            )
        )

    typed(
        v1.DeviceClass,
        "deviceclasses",
        v1.DeviceClass,
        namespaced=False,
        columns=columns.ONLY_AGE,
        counts_generations=True,
    )
    typed(
        v1.DeviceTaintRule,
        "devicetaintrules",
        None,
        namespaced=False,
        status=True,
        columns=columns.TAINT_RULE if release.has_taint_rules_in_v1 else columns.ONLY_AGE,
        counts_generations=True,
    )
    typed(
        v1.ResourceClaim, "resourceclaims", v1beta1.ResourceClaim, namespaced=True, status=True, columns=columns.CLAIM
    )
    typed(
        v1.ResourceClaimTemplate,
        "resourceclaimtemplates",
        v1beta1.ResourceClaimTemplate,
        namespaced=True,
        columns=columns.ONLY_AGE,
    )
    fields = {"spec.nodeName": columns.at("spec", "nodeName"), "spec.driver": columns.at("spec", "driver")}
    if release.selects_by_pool:
        fields["spec.pool.name"] = columns.at("spec", "pool", "name")
    typed(
        v1.ResourceSlice,
        "resourceslices",
        v1beta1.ResourceSlice,
        namespaced=False,
        columns=columns.SLICE,
        fields=fields,
        counts_generations=True,
    )


def _taint_rule_versions(release: Release) -> list[str]:
    beta2 = ["v1beta2"] if release.has_taint_rules_in_v1beta2 else []
    return [*(["v1"] if release.has_taint_rules_in_v1 else []), *beta2, "v1alpha3"]


def _core(release: Release) -> list[Kind]:
    pod_fields = {
        "spec.nodeName": columns.at("spec", "nodeName"),
        "status.phase": columns.at("status", "phase"),
        "spec.schedulerName": columns.at("spec", "schedulerName"),
    }
    about = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    event_fields = {f"involvedObject.{name}": columns.at("involvedObject", name) for name in about} | {
        "reason": columns.at("reason"),
        "type": columns.at("type"),
        "reportingComponent": columns.at("reportingComponent"),
        "source": lambda event: columns.at("source", "component")(event) or event.get("reportingComponent") or "",
    }
    return [
        unstructured_kind(
            "Namespace",
            "namespaces",
            "A name space for objects.",
            columns.NAMESPACE,
            short=("ns",),
            status=True,
            deletes=True,
            namespaced=False,
            has_status_at_first=True,
            fill=_namespace,
            advance=_with_finalizer,
            check=_check_namespace,
            parts={"finalize": Part(_finalized, _check_finalizers, takes_metadata=True)},
            status_part=Part(as_written, _check_phase),
            name_rule=dns_label,
            fields={"status.phase": columns.at("status", "phase")},
        ),
        unstructured_kind(
            "Node",
            "nodes",
            "A machine of the cluster.",
            columns.NODE,
            short=("no",),
            status=True,
            namespaced=False,
            has_status_at_first=True,
            fill=with_node_defaults,
            check=partial(check_node, release=release),
            fields={"spec.unschedulable": lambda obj: str(bool(columns.at("spec", "unschedulable")(obj))).lower()},
        ),
        unstructured_kind(
            "Pod",
            "pods",
            "Containers that run together.",
            columns.POD,
            short=("po",),
            status=True,
            deletes=True,
            has_status_at_first=True,
            counts_generations=True,
            fill=_pod,
            advance=_pending,
            check=partial(check_pod, release=release),
            warn=pod_warnings,
            categories=("all",),
            kept=_PROTOTYPE_FIELDS,
            fields=pod_fields,
            parts=PARTS,
            status_part=status_part(release),
            drop=lambda pod: {**pod, "spec": without_disabled(pod["spec"], release)},
        ),
        unstructured_kind(
            "ConfigMap",
            "configmaps",
            "Configuration for programs.",
            columns.CONFIG_MAP,
            short=("cm",),
            check=check_config_map,
        ),
        unstructured_kind(
            "Secret",
            "secrets",
            "Something confidential.",
            columns.SECRET,
            fill=_secret,
            check=check_secret,
            fields={"type": columns.at("type")},
        ),
        unstructured_kind(
            "Event",
            "events",
            "What happened to an object.",
            columns.EVENT,
            short=("ev",),
            check=check_event,
            fields=event_fields,
            hides_name=True,
            creates_on_update=True,
        ),
        events_kind(columns.EVENT),
    ]


def _namespace(obj: Plain) -> Plain:
    name = obj["metadata"].get("name")
    metadata = {**obj["metadata"]}
    if name:
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
    return {**obj, "metadata": metadata, "status": {"phase": "Active"} | obj["status"]}


def _with_finalizer(new: Plain, old: Plain | None) -> Plain:
    """A new namespace with the server's finalizer; an existing one with the finalizers that it has."""
    finalizers = (old or new)["spec"].get("finalizers") or []
    if old is None and NAMESPACE_FINALIZER not in finalizers:
        finalizers = [*finalizers, NAMESPACE_FINALIZER]
    return {**new, "spec": {"finalizers": finalizers} if finalizers else {}}


def _finalized(new: Plain, old: Plain) -> Plain:
    """A namespace with other finalizers in its spec, which only this subresource changes."""
    return {**old, "spec": new["spec"]}


def _check_finalizers(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    for index, finalizer in enumerate(new["spec"].get("finalizers") or ()):
        _check_finalizer(errors, f"spec.finalizers[{index}]", finalizer)


def _check_finalizer(errors: ErrorList, path: str, finalizer: str) -> None:
    label_name(errors, path, finalizer)
    if "/" not in finalizer and finalizer != NAMESPACE_FINALIZER:
        errors.invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified")


def _check_namespace(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    for finalizer in new["spec"].get("finalizers") or () if old is None else ():
        _check_finalizer(errors, "spec.finalizers", finalizer)


def _check_phase(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    is_ending, phase = bool(new["metadata"].get("deletionTimestamp")), new["status"].get("phase") or ""
    wanted = "Terminating" if is_ending else "Active"
    if phase != wanted:
        why = f"may only be '{wanted}' if `deletionTimestamp` is {'not ' if is_ending else ''}empty"
        errors.invalid("status.Phase", Token(phase), why)


def _deprecation(kind: str, version: str, release: Release) -> str:
    """The warning to clients of a deprecated version in this release; empty if it is not deprecated."""
    since = _DEPRECATED.get(version)
    if since is None or release.minor < since or (kind in _NEW and version == "v1beta2"):
        return ""
    return f"resource.k8s.io/{version} {kind} is deprecated in v1.{since}+, unavailable in v1.{since + 3}+"


def _pod(obj: Plain) -> Plain:
    filled = {**obj, "spec": with_pod_defaults(obj["spec"])}
    return {**filled, "status": with_addresses_in_sync(obj["status"])} if obj.get("status") else filled


def _pending(new: Plain, old: Plain | None) -> Plain:
    """A new pod with the phase Pending; an existing one with the fields that admission set."""
    if old is not None:
        return with_priority_and_tolerations(new, old)
    return {**new, "status": {"phase": "Pending"} | new["status"]}


def _secret(obj: Plain) -> Plain:
    """Move the texts of `stringData`, which is never stored, to `data`."""
    obj = {"type": "Opaque", **obj}
    texts = obj.pop("stringData", None)
    if not texts:
        return obj
    added = {name: base64.b64encode((text or "").encode()).decode() for name, text in texts.items()}
    return {**obj, "data": {**(obj.get("data") or {}), **added}}
