"""Rules for metadata, on create and on update (allocator.md 4.5, "Object metadata")."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from resourceapi.objects import names
from resourceapi.objects.codec import to_dict, without_unknown
from resourceapi.objects.errors import ErrorList, Token, WithAlpha, quoted_text
from resourceapi.objects.field_rules import add_invalid, label_name
from resourceapi.objects.meta import ManagedFieldsEntry, ObjectMeta, OwnerReference
from resourceapi.objects.release import Release

MAX_ANNOTATIONS = 256 * 1024
MAX_MANAGER = 128
MAX_SUBRESOURCE = 256
IMMUTABLE = "field is immutable"

_OF_A_NAMESPACE, _ORPHAN, _FOREGROUND = "kubernetes", "orphan", "foregroundDeletion"


def masked_prefix(text: str) -> str:
    """Return the beginning of a generated name without a dash at its end, because something will follow."""
    return text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text


def metadata_on_create(
    errors: ErrorList,
    meta: ObjectMeta,
    release: Release,
    *,
    namespaced: bool,
    newer: bool = False,
    name_rule: Callable[[str], list[str]] | None = None,
    path: str = "metadata",
) -> None:
    """Check a new object's metadata; a name from `generateName` has been generated already.

    `newer`: check as the reference does for kinds that it has moved to newer code (device classes). `name_rule` is for
    kinds whose names are not DNS subdomains.
    """
    rule = name_rule or partial(names.dns_subdomain, unit="bytes" if newer else "characters")
    if meta.generate_name and not newer:
        add_invalid(errors, f"{path}.generateName", meta.generate_name, rule(masked_prefix(meta.generate_name)))
    if not meta.name:
        errors.required(f"{path}.name", "name or generateName is required")
    else:
        add_invalid(errors, f"{path}.name", meta.name, rule(meta.name))
    if not namespaced:
        if meta.namespace:
            errors.forbidden(f"{path}.namespace", "not allowed on this type")
    elif not meta.namespace:
        errors.required(f"{path}.namespace")
    else:
        add_invalid(errors, f"{path}.namespace", meta.namespace, names.dns_label(meta.namespace))
    if meta.generation < 0:
        errors.invalid(f"{path}.generation", meta.generation, "must be greater than or equal to 0")
    _common(errors, meta, path, release, finalizers=True)


def metadata_on_update(
    errors: ErrorList, new: ObjectMeta, old: ObjectMeta, release: Release, path: str = "metadata"
) -> None:
    """Check the changes of an updated object's metadata."""
    if old.deletion_timestamp is not None:
        added = sorted(set(new.finalizers) - set(old.finalizers))
        if added:
            shown = ", ".join(quoted_text(name) for name in added)
            text = "no new finalizers can be added if the object is being deleted, found new finalizers"
            errors.forbidden(f"{path}.finalizers", f"{text} []string{{{shown}}}")
    if not new.resource_version:
        errors.invalid(f"{path}.resourceVersion", "", "must be specified for an update")
    if release.has_newer_metadata_rules and new.generation < 0:
        errors.invalid(f"{path}.generation", new.generation, "must be greater than or equal to 0")
    if new.generation < old.generation:
        errors.invalid(f"{path}.generation", new.generation, "must not be decremented")
    for name, value, before in (
        ("name", new.name, old.name),
        ("namespace", new.namespace, old.namespace),
        ("uid", Token(new.uid), old.uid),
        ("creationTimestamp", new.creation_timestamp, old.creation_timestamp),
        ("deletionTimestamp", new.deletion_timestamp, old.deletion_timestamp),
        ("deletionGracePeriodSeconds", new.deletion_grace_period_seconds, old.deletion_grace_period_seconds),
    ):
        immutable(errors, f"{path}.{name}", value, before)
    _common(errors, new, path, release, finalizers=False)


def finalizer_labels(errors: ErrorList, meta: ObjectMeta, path: str = "metadata") -> None:
    """Check that finalizers have the form of label keys."""
    for finalizer in meta.finalizers:
        label_name(errors, f"{path}.finalizers", finalizer)


def finalizer_names(errors: ErrorList, meta: ObjectMeta, path: str = "metadata") -> None:
    """Check that finalizers are standard ones or have a domain. Leases and custom kinds do not have this rule."""
    for index, finalizer in enumerate(meta.finalizers):
        if "/" not in finalizer and finalizer not in (_OF_A_NAMESPACE, _ORPHAN, _FOREGROUND):
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.invalid(f"{path}.finalizers[{index}]", finalizer, text)


def template_metadata(errors: ErrorList, meta: ObjectMeta, path: str) -> None:
    """Check the metadata of a template, which can only have labels and annotations."""
    _annotations(errors, f"{path}.annotations", meta.annotations)
    _labels(errors, f"{path}.labels", meta.labels)
    for name in to_dict(without_unknown(meta)):
        if name not in ("annotations", "labels"):
            errors.forbidden(f"{path}.{'uID' if name == 'uid' else name}", "cannot be set")  # spelled like upstream


def immutable(errors: ErrorList, path: str, new: Any, old: Any, *, with_alpha: bool = False) -> None:
    """Check that a field did not change."""
    if new != old:
        errors.invalid(path, WithAlpha(new) if with_alpha else new, IMMUTABLE)


def _common(errors: ErrorList, meta: ObjectMeta, path: str, release: Release, *, finalizers: bool) -> None:
    _labels(errors, f"{path}.labels", meta.labels)
    _annotations(errors, f"{path}.annotations", meta.annotations)
    _owner_references(errors, f"{path}.ownerReferences", meta.owner_references, release)
    if finalizers:
        finalizer_labels(errors, meta, path)
        if _ORPHAN in meta.finalizers and _FOREGROUND in meta.finalizers:
            text = f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"
            errors.invalid(f"{path}.finalizers", list(meta.finalizers), text)
    _managed_fields(errors, f"{path}.managedFields", meta.managed_fields, release)


def _labels(errors: ErrorList, path: str, labels: Mapping[str, str]) -> None:
    for key in sorted(labels):
        label_name(errors, path, key)
        add_invalid(errors, path, labels[key], names.label_value(labels[key]))


def _annotations(errors: ErrorList, path: str, annotations: Mapping[str, str]) -> None:
    for key in sorted(annotations):
        add_invalid(errors, path, key, names.label_key(key.lower()))
    if sum(names.size(key) + names.size(value) for key, value in annotations.items()) > MAX_ANNOTATIONS:
        errors.too_long(path, MAX_ANNOTATIONS)


def _owner_references(errors: ErrorList, path: str, references: Sequence[OwnerReference], release: Release) -> None:
    controller, newer = "", release.has_newer_metadata_rules
    for index, reference in enumerate(references):
        here = f"{path}[{index}]" if newer else path
        if newer and not reference.api_version:
            errors.required(f"{here}.apiVersion", "must not be empty")
        elif not reference.api_version.rpartition("/")[2] or reference.api_version.count("/") > 1:
            text = "must be <group>/<version> or <version>" if newer else "version must not be empty"
            errors.invalid(f"{here}.apiVersion", reference.api_version, text)
        for name in ("kind", "name", "uid"):
            if not getattr(reference, name) and newer:
                errors.required(f"{here}.{name}", "must not be empty")
            elif not getattr(reference, name):
                errors.invalid(f"{here}.{name}", "", "must not be empty")
        if (reference.api_version, reference.kind) == ("v1", "Event"):
            text = "/v1, Kind=Event is disallowed from being an owner"
            errors.invalid(here, reference, text)
        if reference.controller:
            this = f"{reference.kind}/{reference.name}"
            if controller:
                text = 'Only one reference can have Controller set to true. Found "true" in references for'
                errors.invalid(path, references, f"{text} {controller} and {this}")
            else:
                controller = this


def _managed_fields(errors: ErrorList, path: str, entries: Sequence[ManagedFieldsEntry], release: Release) -> None:
    for index, entry in enumerate(entries):
        here = f"{path}[{index}]"
        if release.has_newer_metadata_rules and entry.operation not in ("Apply", "Update"):
            if entry.operation:
                errors.not_supported(f"{here}.operation", entry.operation, ["Apply", "Update"])
            else:
                errors.required(f"{here}.operation", "must not be empty")
        elif entry.operation not in ("Apply", "Update"):
            errors.invalid(f"{here}.operation", Token(entry.operation), "must be `Apply` or `Update`")
        if entry.fields_type not in ("", "FieldsV1"):
            errors.invalid(f"{here}.fieldsType", entry.fields_type, "must be `FieldsV1`")
        field_manager(errors, f"{here}.manager", entry.manager)
        if names.size(entry.subresource) > MAX_SUBRESOURCE:
            errors.too_long(f"{here}.subresource", MAX_SUBRESOURCE)


def field_manager(errors: ErrorList, path: str, manager: str) -> None:
    """Check the name of a field manager: short and printable."""
    if names.size(manager) > MAX_MANAGER:
        errors.too_long(path, MAX_MANAGER)
    position = 0
    for character in manager:
        if not (character == " " or character.isprintable()):
            errors.invalid(path, manager, f"invalid character U+{ord(character):04X} (at position {position})")
        position += names.size(character)
