"""Rules of resource.k8s.io: those of `resourceapi.objects`, with the interface that all kinds share."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from controlplane.apiserver.access.authorization import Authorizer
from controlplane.apiserver.access.claim_writers import check_status_writer
from controlplane.apiserver.explicit_empties import empties, with_empties
from controlplane.apiserver.kinds import Decoded, Plain, Rules, WriteContext
from controlplane.apiserver.status import invalid
from resourceapi.device_selectors import check_device_selector
from resourceapi.objects import (
    ErrorList,
    KubernetesObject,
    Record,
    read_object,
    read_with_problems,
    v1,
    without_unknown,
    write_object,
)
from resourceapi.objects.codec import json_fields, to_dict
from resourceapi.objects.disabled_fields import without_disabled
from resourceapi.objects.meta import WrittenEmpty
from resourceapi.objects.strategy import prepare_create, prepare_status_update, prepare_update, warnings
from resourceapi.objects.validate import validate_create, validate_status_update, validate_update


class TypedRules(Rules):
    """The rules of one typed kind.

    `has_admin_access` returns whether a namespace has the label that allows admin access. `authorizer` decides who can
    change what in a claim's status.
    """

    def __init__(
        self,
        form: type[KubernetesObject],
        clock: Callable[[], datetime],
        has_admin_access: Callable[[str], bool],
        authorizer: Authorizer,
    ) -> None:
        self._kind = form.KIND
        self._hub = form.API_VERSION
        self._clock = clock
        self._has_admin_access = has_admin_access
        self._authorizer = authorizer

    def decode(self, value: Plain, version: str) -> Decoded:
        value["apiVersion"], value["kind"] = f"{v1.GROUP}/{version}", self._kind
        found = read_with_problems(value, defaults_at=self._clock())
        obj = without_unknown(found.object)
        written = self._written(obj)
        _with_empty_lists(obj, written)
        return Decoded(written, found.problems, empties(obj) or None)

    def encode(self, obj: Plain, version: str) -> Plain:
        api_version = f"{v1.GROUP}/{version}"
        return obj if obj["apiVersion"] == api_version else write_object(read_object(obj), api_version)

    def empty(self, version: str) -> Plain:
        api_version = f"{v1.GROUP}/{version}"
        return write_object(read_object({"apiVersion": api_version, "kind": self._kind}), api_version)

    def create(self, obj: Plain, context: WriteContext) -> Plain:
        sent = read_object(with_empties(obj, context.sent))
        new = prepare_create(without_disabled(sent, None, context.release))
        allowed = self._admin_access(new)
        errors = validate_create(
            new,
            check_selector=check_device_selector,
            admin_access_allowed=allowed,
            release=context.release,
            version=context.version,
        )
        self._refuse(new, errors)
        return self._written(new)

    def update(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        before = read_object(old)
        known = without_disabled(read_object(with_empties(new, context.sent)), before, context.release)
        after = prepare_update(known, before, self._clock())
        errors = validate_update(
            after, before, check_selector=check_device_selector, release=context.release, version=context.version
        )
        self._refuse(after, errors)
        return self._written(after)

    def update_status(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        before = read_object(old)
        sent = read_object(with_empties(new, context.sent))
        after = prepare_status_update(without_disabled(sent, before, context.release), before)
        allowed, errors = self._admin_access(after), ErrorList()
        if context.release.checks_claim_writers and isinstance(after, v1.ResourceClaim):
            check_status_writer(errors, self._authorizer, context.caller, self._written(after), old)
        errors += validate_status_update(
            after, before, admin_access_allowed=allowed, release=context.release, version=context.version
        )
        self._refuse(after, errors)
        return self._written(after)

    def warnings(self, obj: Plain) -> list[str]:
        return warnings(read_object(obj))

    def _written(self, obj: KubernetesObject) -> Plain:
        return write_object(obj, self._hub)

    def _admin_access(self, obj: KubernetesObject) -> bool:
        return not obj.metadata.namespace or self._has_admin_access(obj.metadata.namespace)

    def _refuse(self, obj: KubernetesObject, errors: Any) -> None:
        if errors:
            raise invalid(v1.GROUP, self._kind, obj.metadata.name, errors)


def _with_empty_lists(record: Record, written: Plain) -> bool:
    """Put back each `[]` that was sent: stored objects lack them, but errors and field owners need them until then.

    Return whether there was any.
    """
    found = False
    for json_name, field in json_fields(type(record)).items():
        value, form = getattr(record, field.name), written.get(json_name)
        if isinstance(value, WrittenEmpty) and json_name in written:
            written[json_name] = []
            found = True
        elif isinstance(value, Record):
            inner = form if isinstance(form, dict) else to_dict(value)  # an empty record is left out
            if _with_empty_lists(value, inner):
                written[json_name] = inner
                found = True
        elif isinstance(value, tuple) and isinstance(form, list):
            for each, each_form in zip(value, form, strict=True):
                if isinstance(each, Record):
                    found |= _with_empty_lists(each, each_form)
    return found
