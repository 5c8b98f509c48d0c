"""Each right of the DaemonSet is needed: without it some functions fail with a message, and all others work.

`docs/promises.md` has the table.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec import to_builtins

from resourceapi.manifests import read_documents
from tests.e2e.pod_box import ACCOUNT, MANIFEST, PodBox, skip_reason
from tests.nodeplug.cluster import NodeCluster
from tests.ports import free_ports

pytestmark = pytest.mark.e2e
UNITS = ["units", "units with CDI"]
CLASSES, ALL = "classes", ["all"]
_KUBELET = "/var/lib/kubelet"
_STARTED = "offering resources"
LOST_FUNCTIONS: dict[str, tuple[list[str], str]] = {  # the functions that fail, and the message
    "/etc/nodeplug": (ALL, "config.yaml:1:1: this file cannot be read"),
    ACCOUNT: (ALL, "DRA needs the API server: .*/token: No such file"),
    "NODE_NAME": (["slices", "claims", "ready"], "ResourceSlice.* nodes .* not found"),
    "NODEPLUG_METRICS_ADDRESS": (["ready"], _STARTED),
    "/dev": ([*UNITS, "claims", CLASSES], "device is unhealthy: it has no device node"),
    "/sys": ([*UNITS, "claims", CLASSES], _STARTED),
    f"{_KUBELET}/device-plugins": (
        [*UNITS, "ready", CLASSES],
        "waiting for the kubelet: there is no .*/device-plugins;",
    ),
    f"{_KUBELET}/plugins/nodeplug.dev": (["slices", "claims", "ready"], "there is no .*/plugins/nodeplug.dev;"),
    f"{_KUBELET}/plugins_registry": (["slices", "claims", "ready"], "there is no .*/plugins_registry;"),
    f"{_KUBELET}/pod-resources": (["ends of pods"], "leases of ended pods do not end"),
    "/var/lib/nodeplug": ([*UNITS, "claims"], "cannot open the lease database .*: Read-only file system"),
    "/var/run/cdi": (["units with CDI", "claims"], "cannot write CDI specs: .*Read-only file system"),
    "/sys/fs/cgroup": ([], _STARTED),
    "/tmp": ([], _STARTED),
    "NODEPLUG_LOCK_WAIT_SECONDS": ([], _STARTED),
    "POD_UID": ([], _STARTED),
}
"""Rights without a function here are for updates, for times without a kubelet, and for a kubeconfig."""


@pytest.fixture
def node() -> Iterator[Path]:
    """A folder with a short path, for a node's files."""
    if reason := skip_reason():
        pytest.skip(reason)
    made = Path(tempfile.mkdtemp(prefix="np", dir="/srv"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def pod(node: Path) -> AsyncIterator[PodBox]:
    """The prepared container, not started yet."""
    PodBox.kubelet(node).mkdir(parents=True)
    cluster = NodeCluster(PodBox.kubelet(node), authorization="RBAC", tls=True)
    for manifest in to_builtins(read_documents(MANIFEST.read_bytes())):
        cluster.server.write(manifest)
    async with cluster:
        made = PodBox(node, cluster, *free_ports(1))
        await made.prepare()
        yield made
        await made.kill()


async def test_missing_right_of_the_pod_stops_only_its_functions(pod: PodBox) -> None:
    functions = pod.functions()
    assert LOST_FUNCTIONS.keys() == pod.rights()
    await pod.start()
    for function, holds in functions.items():
        await pod.until(holds, function)
    await pod.stop()
    for right, (lost, words) in LOST_FUNCTIONS.items():
        expected = {x for x in functions if x in lost or lost is ALL or (x in pod.classes() and CLASSES in lost)}
        if right == "/dev":
            expected -= {"class nic", "class pci"}  # need no device node
        await pod.start(right)
        await pod.until_logged(words)
        for function, holds in functions.items():
            if function not in expected:
                await pod.until(holds, f"{function} without {right}")
        for function in expected:  # each one is still refused
            assert not await functions[function](), (right, function)
        await pod.stop()
