"""A third-party DRA driver in Go, with client-go's defaults: protobuf with the API server.

Set NODEPLUG_GO_DRIVER to a program that accepts `-driver`, `-node`, `-kubelet`, `-cdi` and `-kubeconfig`.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.kubelet.test_cli import Background

pytestmark = pytest.mark.skipif(
    "NODEPLUG_GO_DRIVER" not in os.environ, reason="set NODEPLUG_GO_DRIVER to a driver in Go"
)
NAME = "go.example"
OBJECTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: go}
spec: {selectors: [{cel: {expression: device.driver == "go.example"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: go}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: demo, namespace: default}
spec:
  containers: [{name: c, image: any, resources: {claims: [{name: one}]}}]
  resourceClaims: [{name: one, resourceClaimName: one}]
"""


def test_go_driver_publishes_slices_and_prepares_claim(socket_dir: Path) -> None:
    """A pod with a claim runs: the driver published slices, watched the claim and prepared it."""
    (socket_dir / "objects.yaml").write_text(OBJECTS)
    folder, load = socket_dir / "k", str(socket_dir / "objects.yaml")
    kubelet = Background(sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder), "--load", load)
    kubelet.until(f"started {folder}")
    places = ("-kubelet", str(folder), "-cdi", str(socket_dir / "cdi"), "-kubeconfig", str(folder / "kubeconfig"))
    driver = Background(os.environ["NODEPLUG_GO_DRIVER"], "-driver", NAME, "-node", "node", *places)
    try:
        kubelet.until("prepared default/demo one")
        kubelet.until("phase Running default/demo")
    finally:
        driver.end()
        assert kubelet.end() == 0
