"""The printed report: allocations and node results, in the prototype's formats.

Source: its README, and allocator specification 6.6.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from controlplane.k8srm.explanation import PoolResult
from controlplane.k8srm.solve import NodeResult, Outcome


def report(outcome: Outcome, *, verbose: bool = False) -> str:
    """Return both parts in the format of the prototype's tests."""
    lines = ["ALLOCATIONS", "-----------", as_yaml(allocations(outcome)), "NODE RESULTS", "------------"]
    if verbose:
        lines.append(as_yaml([_tree(result) for result in outcome.results]))
    else:
        lines += [summary(result) for result in outcome.results]
    return "\n".join(lines) + "\n"


def allocations(outcome: Outcome) -> list[dict[str, Any]] | None:
    """Return how many devices come from which pool, claim by claim; None if nothing was allocated."""
    if outcome.node is None:
        return None
    entries = []
    for assignments in outcome.assignments:
        counts: dict[str, int] = {}
        for device in assignments:
            counts[device.pool] = counts.get(device.pool, 0) + 1
        entries += [{"deviceCount": count, "devicePoolName": pool} for pool, count in counts.items()]
    return entries


def summary(result: NodeResult) -> str:
    """Return the result of a node in one line."""
    if result.unsatisfied:
        return f"{result.node}: could not satisfy these claims: {', '.join(result.unsatisfied)}"
    return f"{result.node}: satisfied all claims with score {result.score}"


def reasons(results: Sequence[NodeResult]) -> list[str]:
    """Return why claims could not be satisfied, one line for each node and claim."""
    return [
        f"{result.node}: {claim.claim_name}: {claim.reason}"
        for result in results
        for claim in result.claims
        if claim.claim_name in result.unsatisfied
    ]


def as_yaml(value: Any) -> str:
    """Return YAML with sorted keys, in the format of Kubernetes' tools."""
    text: str = yaml.safe_dump(value, sort_keys=True, default_flow_style=False, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n")


def _tree(result: NodeResult) -> dict[str, Any]:
    claims = []
    for claim in result.claims:
        sets = [
            _with_reason({"poolResults": list(map(_pool, each.pool_results)), "score": each.score}, each.failure_reason)
            for each in claim.pool_set_results
        ]
        entry: dict[str, Any] = {"best": claim.best, "claimName": claim.claim_name, "poolSetResults": sets or None}
        if claim.ignored_pools:
            entry["ignoredPools"] = list(map(_pool, claim.ignored_pools))
        claims.append(entry)
    return {"DeviceClaimResults": claims, "NodeName": result.node}


def _pool(result: PoolResult) -> dict[str, Any]:
    return _with_reason({"deviceCount": result.device_count, "poolName": result.pool_name}, result.failure_reason)


def _with_reason(entry: Mapping[str, Any], reason: str) -> dict[str, Any]:
    return {**entry, "failureReason": reason} if reason else dict(entry)
