"""`onNodes` and `nodeSelector`: one file for different nodes."""

import pytest

from nodeplug.config import loads, node_name
from tests.nodeplug.config.text import errors_of

FILE = b"""
    resources:
      - {name: x/gpu, onNodes: [big-*, huge-1], select: gpu, shares: 8}
      - {name: x/gpu, onNodes: small-*, select: gpu, shares: 2, env: {A: "{name}"}}
      - {name: x/other, onNodes: big-*, select: kvm, env: {A: "{name}"}}
      - {name: x/gpu, select: gpu}
      - {name: x/tun, select: tun}
"""


@pytest.mark.parametrize(
    ("node", "shares", "elsewhere"),
    [("big-7", 8, ()), ("huge-1", 8, ("x/other",)), ("small-2", 2, ("x/other",)), ("tiny", 1, ("x/other",))],
)
def test_first_entry_for_the_node_is_used(node: str, shares: int, elsewhere: tuple[str, ...]) -> None:
    """Entries for other nodes hide nothing: this node uses its own entry."""
    config = loads(FILE, "f", node)
    assert next(x.shares for x in config.resources if x.name == "x/gpu") == shares
    assert len({x.name for x in config.resources}) == len(config.resources)
    assert config.elsewhere == elsewhere


def test_node_name_of_the_file_overrides_the_argument() -> None:
    config = loads(FILE + b"    settings: {nodeName: small-1}\n", "f", "big-1")
    assert [x.shares for x in config.resources if x.name == "x/gpu"] == [2]


def test_all_entries_are_returned_without_a_node() -> None:
    """For the classes of the whole cluster."""
    assert [x.name for x in loads(FILE).resources] == ["x/gpu", "x/gpu", "x/other", "x/gpu", "x/tun"]


def test_entry_that_is_used_on_no_node_is_refused() -> None:
    assert errors_of("""
        resources:
          - {name: x/a, select: kvm}
          - {name: x/a, select: tun, onNodes: big-*}
    """) == [
        "3:12: x/a is the name of two resources; to select more, use `any` in one of them; for other nodes, set"
        " `onNodes` in the first"
    ]


def test_errors_of_entries_for_other_nodes_are_reported() -> None:
    found = errors_of("resources: [{name: x/a, onNodes: nowhere, select: kvmm}]\n")
    assert found == ["1:51: unknown preset kvmm; did you mean kvm?"]


def test_node_name_comes_from_the_environment_or_the_host() -> None:
    assert node_name(environment={"NODE_NAME": "worker-1"}) == "worker-1"
    assert node_name(environment={}) == node_name(environment={}).lower() != ""


LABELLED = b"""
    resources:
      - {name: x/tun, select: tun}
      - {name: x/gpu, nodeSelector: {pool: [batch, "b-*"], zone: "*"}, select: gpu, shares: 8}
      - {name: x/gpu, onNodes: n2, nodeSelector: {pool: lab}, select: gpu, shares: 2}
      - {name: x/gpu, select: gpu}
      - {name: x/kvm, select: kvm}
"""


@pytest.mark.parametrize(
    ("labels", "shares"),
    [
        ({"pool": "batch", "zone": ""}, 8),
        ({"pool": "b-7", "zone": "a"}, 8),
        ({"pool": "batch"}, 1),
        ({"pool": "lab", "zone": "a"}, 1),  # matches a nodeSelector, but not onNodes
        ({}, 1),
    ],
)
def test_node_selector_chooses_entries_by_labels(labels: dict[str, str], shares: int) -> None:
    config = loads(LABELLED, "f", "n1", None, labels)
    assert [(x.name, x.shares) for x in config.resources] == [("x/tun", 1), ("x/gpu", shares), ("x/kvm", 1)]
    assert (config.waiting, config.selects_nodes) == ((), True)


def test_entries_wait_while_labels_are_unknown() -> None:
    """The first entry that depends on labels waits, and so do later ones, which could otherwise get its devices."""
    config = loads(LABELLED, "f", "n1")
    assert [x.name for x in config.resources] == ["x/tun"]
    assert (config.waiting, config.elsewhere) == (("x/gpu", "x/kvm"), ())
    by_name = b"resources: [{name: x/a, onNodes: n2, nodeSelector: {a: b}, select: tun}, {name: x/b, select: kvm}]"
    config = loads(by_name, "f", "n1")
    assert ([x.name for x in config.resources], config.elsewhere) == (["x/b"], ("x/a",))
