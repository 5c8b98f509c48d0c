"""Who can change which part of a claim's status: the scheduler its allocation, a driver the devices of its node.

Source: KEP-5018's granular status authorization, on since 1.36; the texts are kube-apiserver's.
"""

from typing import Any

from controlplane.apiserver.access.authorization import Attributes, Authorizer, denial_text
from controlplane.apiserver.access.identity import NODE_NAME, Caller
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import forbidden
from resourceapi.objects import ErrorList, v1
from resourceapi.objects.json_value import json_equal

CLAIMS = f"resourceclaims.{v1.GROUP}"


def check_status_writer(errors: ErrorList, authorizer: Authorizer, caller: Caller, new: Plain, old: Plain) -> None:
    """Check that a caller can make this change of a status. Both objects are in v1."""
    after, before = new.get("status") or {}, old.get("status") or {}
    verb, namespace = caller.verb, new["metadata"].get("namespace", "")
    if not all(json_equal(after.get(name), before.get(name)) for name in ("allocation", "reservedFor")):
        wanted = Attributes(verb, v1.GROUP, "resourceclaims", "binding")
        why = _denial_text(authorizer, caller, wanted)
        if why:
            needed = f'resource="resourceclaims/binding", verb="{verb}" permission: {why}'
            errors.forbidden("status.allocation", f"changing status.allocation or status.reservedFor requires {needed}")
    if not after.get("allocation"):
        return
    verbs = [f"arbitrary-node:{verb}"]
    node = _node_of(after["allocation"])
    if node and caller.user.is_account and tuple(caller.user.extra.get(NODE_NAME, ())) == (node,):
        verbs.insert(0, f"associated-node:{verb}")
    for driver in sorted(_changed_drivers(after, before)):
        asked = [Attributes(each, v1.GROUP, "resourceclaims", "driver", namespace, driver) for each in verbs]
        refusals = [_denial_text(authorizer, caller, each) for each in asked]
        if all(refusals):
            needed = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
            errors.forbidden("status.devices", f"changing status.devices requires {needed}")


def _denial_text(authorizer: Authorizer, caller: Caller, wanted: Attributes) -> str:
    decision = authorizer.decide(caller.user, wanted)
    if decision.is_allowed:
        return ""
    text = denial_text(caller.user, wanted, decision.reason)
    return str(forbidden(wanted.group, wanted.resource, wanted.name, text))


def _changed_drivers(after: Plain, before: Plain) -> set[str]:
    new, old = _by_device(after), _by_device(before)
    return {key[0] for key in {*new, *old} if not json_equal(new.get(key), old.get(key))}


def _by_device(status: Plain) -> dict[tuple[str, ...], Any]:
    devices = status.get("devices") or ()
    return {
        tuple(str(each.get(name) or "") for name in ("driver", "pool", "device", "shareID")): each for each in devices
    }


def _node_of(allocation: Plain) -> str:
    """The only node for which an allocation is; empty if there are several."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields = terms[0].get("matchFields") or []
    if len(fields) != 1 or (fields[0].get("key"), fields[0].get("operator")) != ("metadata.name", "In"):
        return ""
    values = fields[0].get("values") or []
    return str(values[0]) if len(values) == 1 else ""
