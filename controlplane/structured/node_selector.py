"""Node selectors of slices and devices, with the allocator's error texts."""

from collections.abc import Sequence

from resourceapi.objects import selectors
from resourceapi.objects.core import Node, NodeSelector, NodeSelectorRequirement


class NodeSelectorError(ValueError):
    """The selector breaks a rule. The text is upstream's, which prints the whole selector."""


def node_matches(selector: NodeSelector, node: Node) -> bool:
    """Return whether the selector matches the node. Raises NodeSelectorError."""
    try:
        return selectors.node_matches(selector, node)
    except selectors.SelectorError as error:
        raise NodeSelectorError(f"failed to parse node selector {_dump(selector)}: {error}") from None


def is_for_node(node: Node, name: str | None, all_nodes: bool | None, selector: NodeSelector | None) -> bool:
    """Return whether a slice or device with these fields is for the node. The first field that is set decides.

    Raises NodeSelectorError.
    """
    if name:
        return name == node.metadata.name
    if all_nodes:
        return True
    return selector is not None and node_matches(selector, node)


def _dump(selector: NodeSelector) -> str:
    """The selector as Go's generated String method prints it."""
    terms = "".join(
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{"
        f"{_dump_requirements(term.match_expressions)}}},MatchFields:[]NodeSelectorRequirement{{"
        f"{_dump_requirements(term.match_fields)}}},}},"
        for term in selector.node_selector_terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _dump_requirements(requirements: Sequence[NodeSelectorRequirement]) -> str:
    return "".join(
        f"NodeSelectorRequirement{{Key:{x.key},Operator:{x.operator},Values:[{' '.join(x.values)}],}},"
        for x in requirements
    )
