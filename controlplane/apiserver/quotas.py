"""Quotas: what they refuse, and the usage in their status.

A write is charged to the quotas of its namespace before it is stored. After objects are removed, the usage is counted
again. As with a real server, a quota applies only after it was counted for the first time.
Source: kubernetes.io "Resource Quotas"; k8s.io/apiserver pkg/admission/plugin/resourcequota, k8s.io/kubernetes
pkg/controller/resourcequota.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controlplane.apiserver.kinds import Kind, Plain, Registry
from controlplane.apiserver.pods.grace import PODS
from controlplane.apiserver.pods.resources import Amounts, sum_amounts
from controlplane.apiserver.quota_scopes import is_in_scope, is_terminating
from controlplane.apiserver.quota_usage import CLAIMS, VOLUME_CLAIMS, Usage, is_counted, missing
from controlplane.apiserver.rules.resource_rules import quantity
from controlplane.apiserver.service_addresses import SERVICES
from controlplane.apiserver.status import ApiError, forbidden
from controlplane.apiserver.store import Store
from resourceapi.objects import Quantity

QUOTAS = "resourcequotas"
_CHANGE = (SERVICES, VOLUME_CLAIMS, CLAIMS)
"""Kinds whose updates can use more."""
_ZERO = Quantity.of(0)


class Charge(NamedTuple):
    """A write that can use quotas; `old` is None for a new object."""

    kind: Kind
    namespace: str
    subresource: str
    new: Plain
    old: Plain | None


class Quotas:
    """The stored quotas and their usage."""

    def __init__(self, store: Store, registry: Registry, usage: Usage) -> None:
        self._store, self._registry, self._usage = store, registry, usage

    def updated_quotas(self, charge: Charge) -> list[Plain]:
        """Return the quotas that a write changes, with their new usage. Raises ApiError 403 if one is exceeded."""
        if not charge.namespace or not _is_measured(charge):
            return []
        changed = (self._charge(quota, charge) for quota in self._store.objects(QUOTAS, charge.namespace))
        return [each for each in changed if each is not None]

    def with_current_usage(self, quota: Plain) -> Plain | None:
        """Return a quota with its current usage; None if its status is correct already."""
        hard, status = quota["spec"].get("hard") or {}, quota.get("status") or {}
        found: Amounts = {}
        measured: set[str] = set()
        for kind in self._registry:
            names = self._usage.names(kind.id, hard) if kind.namespaced and is_counted(kind.id) else set()
            measured |= names
            for obj in self._store.objects(kind.table, quota["metadata"]["namespace"]) if names else ():
                if is_in_scope(kind.id, quota, obj):
                    found = sum_amounts(found, self._usage.of(kind.id, obj))
        before = _amounts(status.get("used"))
        used = {name: amount for name, amount in before.items() if name in hard}
        used |= {name: found.get(name, _ZERO) for name in measured}
        if "hard" in status and "used" in status and _amounts(hard) == _amounts(status["hard"]) and used == before:
            return None
        return _with_status(quota, hard, used)

    def _charge(self, quota: Plain, charge: Charge) -> Plain | None:
        """A quota after a write; None if the write uses nothing of it."""
        kind, name, status = charge.kind, quota["metadata"]["name"], quota.get("status") or {}
        hard, used = _amounts(status.get("hard")), _amounts(status.get("used"))
        names = self._usage.names(kind.id, hard)
        if not names or not is_in_scope(kind.id, quota, charge.new):
            return None
        missing_amounts = missing(charge.new, names) if kind.id == PODS else ""
        if missing_amounts:
            raise _refusal(charge, f"failed quota: {name}: {missing_amounts}")
        if not names <= used.keys():
            raise _refusal(charge, f"status unknown for quota: {name}, resources: {','.join(sorted(names))}")
        more = self._usage.of(kind.id, charge.new)
        if charge.old is not None and is_in_scope(kind.id, quota, charge.old):
            before = self._usage.of(kind.id, charge.old)
            more = {name: amount - before.get(name, _ZERO) for name, amount in more.items()}
        more = {resource: amount for resource, amount in more.items() if resource in hard and amount > _ZERO}
        after = sum_amounts(used, more)
        exceeded = sorted(resource for resource in more if after[resource] > hard[resource])
        if exceeded and charge.subresource != "status":
            texts = {"requested": more, "used": used, "limited": hard}
            amounts_of = [f"{word}: {_listed(amounts, exceeded)}" for word, amounts in texts.items()]
            raise _refusal(charge, f"exceeded quota: {name}, {', '.join(amounts_of)}")
        return _with_status(quota, status["hard"], after) if more else None


def _is_measured(charge: Charge) -> bool:
    """Return whether a write can use more of a quota than the object did before."""
    kind, new, old = charge.kind.id, charge.new, charge.old
    if charge.subresource:
        return (kind, charge.subresource) in ((PODS, "resize"), (VOLUME_CLAIMS, "status"))
    if old is None:
        return is_counted(kind)
    return kind in _CHANGE or (kind == PODS and is_terminating(new) != is_terminating(old))


def _listed(amounts: Amounts, names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names if name in amounts)


def _amounts(amounts: Mapping[str, str] | None) -> Amounts:
    return {name: quantity(amount) for name, amount in (amounts or {}).items()}


def _with_status(quota: Plain, hard: Plain, used: Amounts) -> Plain:
    return {**quota, "status": {"hard": hard, "used": {name: str(used[name]) for name in sorted(used)}}}


def _refusal(charge: Charge, why: str) -> ApiError:
    kind = charge.kind
    return forbidden(kind.group, kind.plural, charge.new["metadata"]["name"], why)
