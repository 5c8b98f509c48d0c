"""The manifests under examples/: each pod gets the devices that its comment describes."""

from pathlib import Path

import pytest

from controlplane.k8srm import read_files
from controlplane.k8srm.plan import plan
from controlplane.k8srm.types import write

FOLDER = Path(__file__).parents[3] / "examples" / "k8srm" / "testdata"
BASE = [FOLDER / f"{name}.yaml" for name in ("drivers", "classes", "configs", "pools")]


@pytest.mark.parametrize(
    ("name", "node", "devices"),
    [
        ("ref-foozer-single", "node-b", [["node-b-foozer/dev-00"]]),
        ("template-foozer-single", "node-a", [["node-a-foozer/dev-00"]]),
        ("embedded-partial-gpu", "node-a", [["node-a-foozer/dev-00 memory=50Gi", "node-a-foozer/dev-01 memory=50Gi"]]),
        ("aligned-gpu-and-nic", "node-a", [["node-a-foozer/dev-01", "node-a-nics/vf-1"], ["vlans/vlan-2000"]]),
        ("one-of", "node-b", [["node-b-foozer/dev-00", "node-b-foozer/dev-01"]]),
        (
            "monitor",
            "node-a",
            [
                ["node-a-barzer/whole", "node-a-barzer/half-0", "node-a-barzer/half-1"],
                ["node-a-foozer/dev-00", "node-a-foozer/dev-01"],
            ],
        ),
    ],
)
def test_example_pod_gets_documented_devices(name: str, node: str, devices: list[list[str]]) -> None:
    cluster = read_files([*BASE, FOLDER / f"pod-{name}.yaml"])
    outcome = plan(cluster.pods[f"default/{name}"], cluster, cluster.others.get)
    assert outcome.outcome.node == node
    assert [
        [
            " ".join(
                [
                    f"{each['devicePoolName']}/{each['deviceName']}",
                    *(f"{x['name']}={x['allocation']}" for x in each.get("allocations", ())),
                ]
            )
            for each in write(made.claim)["status"]["allocations"]
        ]
        for made in outcome.claims
    ] == devices


def test_example_claim_contains_class_and_claim_configuration() -> None:
    cluster = read_files([*BASE, FOLDER / "pod-ref-foozer-single.yaml"])
    outcome = plan(cluster.pods["default/ref-foozer-single"], cluster, cluster.others.get)
    status = outcome.claims[0].claim.status
    assert [each["metadata"]["name"] for each in status.class_configs] == ["balanced"]
    assert [each["metadata"]["name"] for each in status.claim_configs] == ["superfast-mode"]
