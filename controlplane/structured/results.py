"""A solution as AllocationResults: devices, their configuration, and where they can be used."""

import uuid
from collections.abc import Sequence

from controlplane.structured.errors import AllocationError
from controlplane.structured.features import Features
from controlplane.structured.layout import Layout
from controlplane.structured.problem import Task, TaskClaim
from controlplane.structured.search import Pick
from resourceapi.objects.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from resourceapi.objects.v1 import (
    FROM_CLAIM,
    FROM_CLASS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)


def allocation(
    claim: TaskClaim, chosen: Sequence[Task], picks: Sequence[Pick], layout: Layout, node: Node, features: Features
) -> AllocationResult:
    """Return one claim's allocation. Raises AllocationError for a node selector that cannot be merged."""
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple([_result(pick, layout, features) for pick in picks]),
            config=_config(claim.planned.claim, chosen),
        ),
        node_selector=_node_selector(claim.planned.claim, picks, layout, node),
    )


def _result(pick: Pick, layout: Layout, features: Features) -> DeviceRequestAllocationResult:
    record, index = layout.locate(pick.position)
    device = record.devices[index]
    driver, pool = record.pool
    with_conditions = features.device_binding_and_status
    return DeviceRequestAllocationResult(
        request=pick.task.choice.ref,
        driver=driver,
        pool=pool,
        device=device.name,
        admin_access=True if pick.task.admin_access else None,
        tolerations=pick.task.choice.tolerations,
        share_id=str(uuid.uuid4()) if pick.is_shared else None,
        consumed_capacity=pick.amounts if pick.is_shared else {},
        binding_conditions=device.binding_conditions if with_conditions else (),
        binding_failure_conditions=device.binding_failure_conditions if with_conditions else (),
    )


def _config(claim: ResourceClaim, chosen: Sequence[Task]) -> tuple[DeviceAllocationConfiguration, ...]:
    """The configuration of the classes in the order of their first use, then that of the claim.

    A list of requests that covers the whole claim is omitted.
    """
    spec = claim.spec.devices
    refs_by_class: dict[str, list[str]] = {}
    for task in chosen:
        if task.choice.device_class.spec.config:
            refs_by_class.setdefault(task.choice.device_class.metadata.name, []).append(task.choice.ref)
    if not refs_by_class and not spec.config:
        return ()
    classes = {task.choice.device_class.metadata.name: task.choice.device_class for task in chosen}
    entries = [
        (FROM_CLASS, refs, config.opaque)
        for name, refs in refs_by_class.items()
        for config in classes[name].spec.config
    ]
    known = {request.name for request in spec.requests} | {task.choice.ref for task in chosen}
    entries += [
        (FROM_CLAIM, list(config.requests), config.opaque)
        for config in spec.config
        if not config.requests or not known.isdisjoint(config.requests)
    ]
    return tuple(
        DeviceAllocationConfiguration(
            source=source, requests=() if _covers(requests, chosen) else tuple(requests), opaque=opaque
        )
        for source, requests, opaque in entries
    )


def _covers(requests: Sequence[str], chosen: Sequence[Task]) -> bool:
    return all(task.choice.request in requests or task.choice.ref in requests for task in chosen)


def _node_selector(claim: ResourceClaim, picks: Sequence[Pick], layout: Layout, node: Node) -> NodeSelector | None:
    """Where all devices can be used: on this node if one of them is local, otherwise where all their selectors match.

    A device with `bindsToNode` binds to its node whatever the gates are: with the gate off, new slices lack the field.
    """
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for pick in picks:
        record, index = layout.locate(pick.position)
        device, spec = record.devices[index], record.slice.spec
        place = device if record.selects_per_device else spec
        if place.node_name or device.binds_to_node:
            here = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node.metadata.name,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(here,)),))
        if place.node_selector is None or not place.node_selector.node_selector_terms:
            continue
        terms = place.node_selector.node_selector_terms
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {claim.metadata.name}: "
                f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        _add_missing(fields, terms[0].match_fields)
        _add_missing(expressions, terms[0].match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _add_missing(requirements: list[NodeSelectorRequirement], more: Sequence[NodeSelectorRequirement]) -> None:
    for new in more:
        if not any(
            (new.key, new.operator, set(new.values)) == (old.key, old.operator, set(old.values)) for old in requirements
        ):
            requirements.append(new)
