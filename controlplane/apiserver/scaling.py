"""Writing the scale of an object: the object is changed, and its rules decide whether that is allowed.

The owners of the number of replicas are tracked as if the scale were an object (KEP-555: subresources).
"""

import json
from collections.abc import Callable

from controlplane.apiserver.decoding import configuration, decode_patched, in_namespace
from controlplane.apiserver.kinds import Decoded, Plain, ScalePaths
from controlplane.apiserver.managed import Manager, starting_managers, track_update, with_managed
from controlplane.apiserver.options import WriteOptions
from controlplane.apiserver.patch import APPLY_PATCH, STRATEGIC_MERGE_PATCH, Patch, patched
from controlplane.apiserver.preconditions import check_name, check_uid
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.rules.auxiliary_rules import not_negative
from controlplane.apiserver.scale import (
    API_VERSION,
    SCALE,
    apply_unsupported_error,
    managers_of_object,
    managers_of_scale,
    scale_to_change,
    scaled,
)
from controlplane.apiserver.status import added_warnings, invalid
from controlplane.apiserver.strategic import shown_patch, strategic_merge
from controlplane.apiserver.target import Target
from resourceapi.objects import ErrorList

_Change = Callable[[Plain], tuple[Plain, tuple[str, ...]]]


def scale_target(target: Target) -> Target:
    """Return the scale of a path's object as a target."""
    return target._replace(kind=SCALE, version="v1", subresource="scale")


def put_scale(
    rest: Rest, target: Target, paths: ScalePaths, read: Decoded, options: WriteOptions, manager: str
) -> Outcome:
    """Replace the scale of an object. The outcome has the object."""
    with added_warnings(read.problems):
        check_name(target, read.object)
        wanted = in_namespace(target, read.object)
        old = rest.get(target)
        uid = wanted["metadata"].get("uid")
        if uid:
            check_uid(target, old, uid, is_dry_run=options.dry_run)
        return _rescale(rest, target, paths, old, lambda _: (wanted, read.problems), options, manager)


def patch_scale(
    rest: Rest, target: Target, paths: ScalePaths, patch: Patch, options: WriteOptions, manager: str
) -> Outcome:
    """Patch the scale of an object. The outcome has the object."""
    of_scale = scale_target(target)

    def change(scale: Plain) -> tuple[Plain, tuple[str, ...]]:
        if patch.type == STRATEGIC_MERGE_PATCH:
            value = strategic_merge(scale, patch.value, SCALE.versions[0].schema)
            shown = shown_patch(patch.value, scale)
        else:
            value = patched(scale, patch, is_checked=options.field_validation != "Ignore")
            shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        decoded = decode_patched(of_scale, value, options, lambda: shown, patch)
        check_name(target, decoded.object)
        return decoded.object, decoded.problems

    old = rest.get(target)
    if patch.type == APPLY_PATCH:
        configuration(of_scale, patch.value, rest.release)
        raise apply_unsupported_error()
    return _rescale(rest, target, paths, old, change, options, manager)


def _rescale(
    rest: Rest, target: Target, paths: ScalePaths, old: Plain, change: _Change, options: WriteOptions, manager: str
) -> Outcome:
    kind = target.kind
    of_version = {kind.api_version(each.name): each.scale for each in kind.versions}
    owners = starting_managers(old, old, "")
    of_scale = managers_of_scale(owners, of_version)
    obj = kind.rules.encode(old, target.version)
    before = with_managed(scale_to_change(obj, paths), of_scale)
    wanted, problems = change(before)
    with added_warnings(problems):
        if not kind.from_definition:
            _check_count(target, wanted)
        who = Manager(manager, "Update", API_VERSION, "scale")
        schema = SCALE.versions[0].schema
        of_scale = track_update(before, wanted, schema, of_scale, who, rest.clock(), is_new=False, ignored=("status",))
        new = kind.rules.decode(scaled(obj, wanted, paths), target.version).object
        new = with_managed(new, managers_of_object(owners, of_scale, of_version, target.api_version))
        return rest.save(target, new, old, options, Decoded(new, problems))


def _check_count(target: Target, scale: Plain) -> None:
    """Check the scale of a built-in kind. Custom resources are checked with their objects."""
    errors = ErrorList()
    not_negative(errors, "spec.replicas", (scale.get("spec") or {}).get("replicas"))
    if errors:
        raise invalid(SCALE.group, SCALE.kind, target.name, errors)
