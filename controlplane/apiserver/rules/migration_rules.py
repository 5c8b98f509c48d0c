"""The rules of StorageVersionMigrations, which ask for the objects of a resource to be stored again.

Source: k8s.io/kubernetes pkg/apis/storagemigration/validation/validation.go.
"""

import re

from controlplane.apiserver.internal_types import published
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.conditions import condition
from resourceapi.objects import Condition, ErrorList, InOrder, from_dict, to_dict
from resourceapi.objects.field_rules import conditions
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_1035_label, dns_subdomain
from resourceapi.objects.release import Release

_IMMUTABLE = "field is immutable"
_VERSION = re.compile(r"[1-9][0-9]*", re.ASCII)
_SUCCEEDED, _FAILED = "Succeeded", "Failed"


def check_migration(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check a migration."""
    asked = new["spec"].get("resource") or {}
    group, resource, path = asked.get("group") or "", asked.get("resource") or "", "spec.resource"
    if not resource:
        errors.required(f"{path}.resource", "resource is required to be set")
    elif found := dns_1035_label(resource):
        errors.invalid(f"{path}.resource", resource, ",".join(found))
    if group and (found := dns_subdomain(group)):
        errors.invalid(f"{path}.group", group, ",".join(found))
    if old is not None and not json_equal(new["spec"], old["spec"]):
        errors.invalid("spec", {"Resource": {"group": group, "resource": resource}}, _IMMUTABLE)


def check_migration_status(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    """Check the status of a migration: what has ended stays so."""
    status, before = new["status"], (old or {}).get("status") or {}
    version, was = status.get("resourceVersion") or "", before.get("resourceVersion") or ""
    if version and not _VERSION.fullmatch(version):
        errors.invalid("status.resourceVersion", version, f"resource version is not well formed: {version}")
    found = [from_dict(Condition, each) for each in status.get("conditions") or ()]
    shown = InOrder([published(to_dict(each)) for each in found])
    conditions(errors, "status.conditions", found, release)
    if was and version != was:
        errors.invalid("status.resourceVersion", version, _IMMUTABLE)
    if _is_true(status, _SUCCEEDED) and _is_true(status, _FAILED):
        why = "Both success and failed conditions cannot be true at the same time"
        errors.invalid("status.conditions", shown, why)
    for kind, name in ((_SUCCEEDED, "Success"), (_FAILED, "Failed")):
        if _is_true(before, kind) and not _is_true(status, kind):
            why = f"{name} condition cannot be set to false once it is true"
            errors.invalid("status.conditions", shown, why)


def _is_true(status: Plain, kind: str) -> bool:
    return (condition(status, kind) or {}).get("status") == "True"
