"""The k8srm prototype: claims, classes and pools of devmgmtproto.k8s.io, scheduled by the structured allocator."""

from controlplane.k8srm.errors import K8srmError, SolveTimeout
from controlplane.k8srm.explanation import ClaimResult, PoolResult, PoolSetResult
from controlplane.k8srm.load import ClusterObjects, read_files
from controlplane.k8srm.solve import NodeResult, Outcome, Solver, select_node
from controlplane.k8srm.types import API_VERSION, GROUP, KINDS

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "ClaimResult",
    "ClusterObjects",
    "K8srmError",
    "NodeResult",
    "Outcome",
    "PoolResult",
    "PoolSetResult",
    "SolveTimeout",
    "Solver",
    "read_files",
    "select_node",
]
