"""Objects of operators that install a plugin: those that contain its file, and those from which they generate it.

What an operator generates depends on the nodes and on the operator's release, so the user must provide the result.

Source: Mellanox/network-operator, example/crs and manifests/state-*-device-plugin; NVIDIA/gpu-operator,
assets/state-device-plugin; k8snetworkplumbingwg/sriov-network-operator, pkg/consts; dra-driver-sriov, pkg/api.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from nodeplug.config import Finding
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Scalar, Unreadable
from nodeplug.convert.wrapping import below, parsed, text_of


class _Generated(Struct, frozen=True):
    """What an operator generates from its objects of `api_group`, and how to get that."""

    api_group: str
    what: str
    hint: str


POLICY = "NicClusterPolicy"
"""The kind of objects that contain files."""
_POLICIES = "mellanox.com"
_PLUGINS = {"rdmaSharedDevicePlugin": "rdma-shared", "sriovDevicePlugin": "sriov"}
_HAS_CARDS = "feature.node.kubernetes.io/pci-15b3.present"
_FUNCTIONS = _Generated(
    "sriovnetwork.openshift.io",
    "the offered functions are in the ConfigMap that the SR-IOV operator makes from all its policies",
    "convert that, `kubectl get configmap device-plugin-config -o yaml` in the operator's namespace,"
    " with `--domain openshift.io`",
)
_CLAIMED = _Generated(
    "sriovnetwork.k8snetworkplumbingwg.io",
    "this belongs to a DRA driver, whose devices have no resource names that pods could continue to request",
    "write a resource with `api: dra`; docs/migration.md, Claims that other DRA drivers served, says what its"
    " attributes are called",
)
_GENERATED = {
    "ClusterPolicy": _Generated(
        "nvidia.com",
        "the offered devices are in the DaemonSet that NVIDIA's operator makes from a ClusterPolicy",
        "convert that, `kubectl get daemonset nvidia-device-plugin-daemonset -o yaml` in the operator's namespace,"
        " or the ConfigMap that devicePlugin.config names",
    ),
    **dict.fromkeys(
        ("SriovNetworkNodePolicy", "SriovNetworkNodeState", "SriovNetworkPoolConfig", "SriovOperatorConfig"), _FUNCTIONS
    ),
    **dict.fromkeys(("SriovResourcePolicy", "DeviceAttributes"), _CLAIMED),
}


def is_an_operators(root: Node) -> bool:
    """Return whether an object belongs to one of these operators, and not to another program with the same kind."""
    kind = _word(root, "kind")
    group = _GENERATED[kind].api_group if kind in _GENERATED else _POLICIES if kind == POLICY else ""
    return bool(group) and _word(root, "apiVersion").partition("/")[0] == group


def files_of(root: Node) -> Iterator[tuple[str, Node, Mapping[str, str]]]:
    """Yield the plugins' files in an operator's object: format, file, and the labels of the nodes that it is for.

    Raises `Unreadable` if the object has none.
    """
    if not is_an_operators(root):
        return
    if made := _GENERATED.get(_word(root, "kind")):
        raise Unreadable(Finding(root.line, root.column, made.what, made.hint))
    found = {name: below(root, "spec", plugin, "config") for plugin, name in _PLUGINS.items()}
    texts = {name: x for name, x in found.items() if isinstance(x, Scalar) and x.text.strip()}
    if not texts:
        places = " or ".join(f"spec.{plugin}.config" for plugin in _PLUGINS)
        raise Unreadable(Finding(root.line, root.column, f"this {POLICY} has no {places}"))
    chosen = below(root, "spec", "nodeSelector")
    labels = {k.text: v.text for k, v in chosen.entries if isinstance(v, Scalar)} if isinstance(chosen, Keys) else {}
    for name, text in texts.items():
        yield name, parsed(text), {_HAS_CARDS: "true", **labels}


def _word(root: Node, name: str) -> str:
    return text_of(root, name) if isinstance(root, Keys) else ""
