"""The API server's changes to an object before it validates and stores it (allocator.md 4.4)."""

from datetime import datetime
from typing import TypeVar, cast

from msgspec.structs import replace

from resourceapi.objects import v1
from resourceapi.objects.errors import quoted_text
from resourceapi.objects.meta import KubernetesObject, ObjectMeta

K = TypeVar("K", bound=KubernetesObject)

_WITH_GENERATION = (v1.DeviceClass, v1.ResourceSlice, v1.DeviceTaintRule)


def prepare_create(obj: K) -> K:
    """Return a new object as it is stored: without status, with generation 1 if the kind counts generations."""
    result: KubernetesObject = obj
    if isinstance(result, v1.ResourceClaim):
        result = replace(result, status=v1.ResourceClaimStatus())
    if isinstance(result, v1.DeviceTaintRule):
        result = replace(result, status=v1.DeviceTaintRuleStatus())
    if isinstance(result, _WITH_GENERATION):
        result = replace(result, metadata=replace(result.metadata, generation=1))
    return cast("K", result)


def prepare_update(new: K, old: K, now: datetime) -> K:
    """Return an updated object as it is stored: with the old status, and the next generation if the spec changed.

    `now` becomes the time of a taint rule whose effect changed but whose time did not.
    """
    result: KubernetesObject = new
    if isinstance(result, v1.ResourceClaim) and isinstance(old, v1.ResourceClaim):
        result = replace(result, status=old.status)
    if isinstance(result, v1.DeviceTaintRule) and isinstance(old, v1.DeviceTaintRule):
        taint, before = result.spec.taint, old.spec.taint
        if taint.effect != before.effect and taint.time_added == before.time_added:
            taint = replace(taint, time_added=now.replace(microsecond=0))
        result = replace(result, status=old.status, spec=replace(result.spec, taint=taint))
    if isinstance(result, _WITH_GENERATION) and isinstance(old, _WITH_GENERATION) and result.spec != old.spec:
        result = replace(result, metadata=replace(result.metadata, generation=old.metadata.generation + 1))
    return cast("K", result)


def prepare_status_update(new: K, old: K) -> K:
    """Return an object with an updated status as it is stored: with the old spec and metadata.

    The statuses of devices that this update deallocates are dropped.
    """
    result: KubernetesObject = replace(new, metadata=_metadata_for_status(new.metadata, old.metadata))
    if isinstance(result, v1.ResourceClaim) and isinstance(old, v1.ResourceClaim):
        gone = _allocated(old.status) - _allocated(result.status)
        devices = tuple(x for x in result.status.devices if (x.driver, x.pool, x.device, x.share_id) not in gone)
        result = replace(result, spec=old.spec, status=replace(result.status, devices=devices))
    if isinstance(result, v1.DeviceTaintRule) and isinstance(old, v1.DeviceTaintRule):
        result = replace(result, spec=old.spec)
    return cast("K", result)


def warnings(obj: KubernetesObject) -> list[str]:
    """Return the API server's warnings about a written object."""
    if isinstance(obj, v1.ResourceSlice) and obj.spec.driver != obj.spec.driver.lower():
        driver = quoted_text(obj.spec.driver)
        return [f"spec.driver: driver names should be lowercase; {driver} contains uppercase characters"]
    return []


def _metadata_for_status(new: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    return replace(
        new,
        deletion_timestamp=old.deletion_timestamp,
        generation=old.generation,
        self_link=old.self_link,
        labels=old.labels,
        annotations=old.annotations,
        finalizers=old.finalizers,
        owner_references=old.owner_references,
    )


def _allocated(status: v1.ResourceClaimStatus) -> set[tuple[str, str, str, str | None]]:
    results = status.allocation.devices.results if status.allocation else ()
    return {(result.driver, result.pool, result.device, result.share_id) for result in results}
