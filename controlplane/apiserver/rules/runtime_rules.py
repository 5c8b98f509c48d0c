"""The rules of RuntimeClasses. Source: k8s.io/kubernetes pkg/apis/node/validation/validation.go."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from controlplane.apiserver.internal_types import internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.spec_rules import check_toleration
from controlplane.apiserver.rules.label_rules import check_labels
from controlplane.apiserver.rules.resource_rules import check_requirements
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import dns_label
from resourceapi.objects.release import Release

_LIST_KEY = ("key", "operator", "value", "effect")


def _runtime(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    name = new.get("handler") or ""
    is_changed = old is not None and name != (old.get("handler") or "")
    if is_changed:
        errors.invalid("handler", None if release.has_declared_rules else name, "field is immutable")
    if name:
        is_declared = release.has_declared_rules and not is_changed  # after a change, declared rules are not evaluated
        add_invalid(errors, "handler", name, dns_label(name, "bytes" if is_declared else "characters"))
    else:
        errors.required("handler")
    if new.get("overhead") is not None:
        check_requirements(errors, {"limits": new["overhead"].get("podFixed")}, "overhead", set())
    scheduling, seen = new.get("scheduling") or {}, set[Any]()
    check_labels(errors, "scheduling.nodeSelector", scheduling.get("nodeSelector"))
    for index, toleration in enumerate(scheduling.get("tolerations") or ()):
        path = f"scheduling.tolerations[{index}]"
        check_toleration(errors, toleration, path)
        key = tuple(toleration.get(member) or "" for member in _LIST_KEY)
        if key in seen:
            errors.duplicate(path, internal_form("core.Toleration", toleration, release))
        seen.add(key)


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {"RuntimeClass": partial(_runtime, release=release)}
