"""docs/start-cluster.md, run as written: the shipped image and the Helm chart, on the real node."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeplug.version import VERSION
from tests.e2e.conftest import CHECKOUT
from tests.e2e.pages import PageUser, steps
from tests.e2e.realnode import BUSYBOX, FOLDER, HOME, RealNode
from tests.network import ip

pytestmark = pytest.mark.e2e
PAGE = "start-cluster.md"
KVM = "example.com/kvm"
SERVICE, SERVER = ("10.96.0.1", 443), ("127.0.0.1", 16443)
"""The API server's address for pods, and its real address: there is no kube-proxy here."""
NEWER = "localhost/nodeplug:99.0.0"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone, with the image in `dist` as built by `make dist`."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(CHECKOUT / "deploy", folder / "deploy")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    (folder / "dist").mkdir()
    image = folder / f"dist/nodeplug-{VERSION}-amd64.oci.tar"
    subprocess.run([sys.executable, "-m", "deploy.image", wheel, image], cwd=CHECKOUT, check=True, capture_output=True)
    return folder


@pytest.fixture
def service() -> Iterator[None]:
    """The API server's service, for pods with the node's network."""
    ip("address", "replace", f"{SERVICE[0]}/32", "dev", "lo")
    ready, loop = threading.Event(), asyncio.new_event_loop()
    task: asyncio.Task[None] | None = None

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
        target.close()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection(*SERVER)
        await asyncio.gather(copy(reader, to_server[1]), copy(to_server[0], writer))

    async def serve() -> None:
        nonlocal task
        task = asyncio.current_task()
        async with await asyncio.start_server(join, *SERVICE):
            ready.set()
            await asyncio.Event().wait()

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(serve())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    yield
    assert task is not None
    loop.call_soon_threadsafe(task.cancel)
    thread.join()
    ip("address", "del", f"{SERVICE[0]}/32", "dev", "lo")


def typing_in(folder: Path) -> Callable[[str], "subprocess.CompletedProcess[str]"]:
    """Return a function that runs a command in a folder, with helm and kubeconfig; pods have the node's network."""
    path = f"{FOLDER}:{HOME / 'bin'}:{Path.home() / '.cache/realnode/bin'}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(HOME / "run/conf/admin.kubeconfig")}

    def run(typed: str) -> "subprocess.CompletedProcess[str]":
        typed += " --set hostNetwork=true" if re.match("helm (install|upgrade)", typed) else ""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", typed],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def page_user(node: RealNode, service: None, clone: Path) -> Iterator[PageUser]:
    typing = PageUser(typing_in(clone))
    yield typing
    logs = "kubectl logs -n nodeplug -l app.kubernetes.io/name=nodeplug --prefix --tail=50"
    print(typing.asks(f"kubectl get events -n nodeplug; {logs}").stdout)
    typing.asks("helm uninstall nodeplug -n nodeplug")
    for kind in ("deviceclass", "resourceslice"):
        node.kubectl("delete", kind, "--all")
    node.delete_pod("virtual-machine")
    node.kubectl("delete", "namespace", "nodeplug", "--ignore-not-found", "--wait=true", "--timeout=60s")


def test_cluster_page_works_as_written(node: RealNode, page_user: PageUser, clone: Path) -> None:
    outputs: dict[str, str] = {}
    for kind, text in steps(PAGE):
        if kind == "yaml" and text.startswith("# values.yaml"):
            (clone / "values.yaml").write_text(text)
        elif kind == "yaml":
            runs(node, yaml.safe_load(text))
        elif text.startswith("kubectl apply -f deploy/"):
            continue  # the alternative, which the DaemonSet's own tests run
        else:
            if "example.com" in text:
                node.wait_resource(KVM, 100)
            outputs[text] = page_user.types(before(page_user, text))
            after(node, page_user, text)
    outcome = {re.sub(r"^kubectl exec .* -- ", "", text): printed for text, printed in outputs.items()}
    assert "nodeplug.dev/fuse" in outcome["kubectl describe node | grep nodeplug.dev"]
    assert "wrong" not in outcome["nodeplug status"]
    assert "example.com/kvm is new" in outcome["nodeplug events"]
    assert "gpu.example.com" in outcome["nodeplug classes /etc/nodeplug/config.yaml | kubectl apply -f -"]


def runs(node: RealNode, pod: dict[str, Any]) -> None:
    """Create the page's pod, with the busybox of this node."""
    (container,) = pod["spec"]["containers"]
    container["image"] = BUSYBOX
    node.wait_resource(KVM, 100, timeout=150)
    node.apply(pod)
    node.wait(f"pod/{pod['metadata']['name']}", ".status.phase", "Succeeded")
    assert "/dev/kvm" in node.kubectl("logs", pod["metadata"]["name"])


def before(page_user: PageUser, text: str) -> str:
    """The newer image of the page is this one with another name."""
    if "image.tag=" not in text:
        return text
    page_user.types(f"ctr images tag localhost/nodeplug:{VERSION} {NEWER}")
    return re.sub(r"image\.tag=\S+", f"image.tag={NEWER.partition(':')[2]}", text)


def after(node: RealNode, page_user: PageUser, text: str) -> None:
    """Check the result of a step."""
    if text.startswith("helm upgrade") and "values.yaml" in text:
        begun = time.monotonic()
        node.wait_resource(KVM, 100, timeout=150)
        print(f"[{time.monotonic() - begun:5.1f} s] the ConfigMap is in force")
        return
    if text.startswith(("helm upgrade", "helm rollback")):
        page_user.types("kubectl rollout status -n nodeplug daemonset/nodeplug --timeout=60s")
        pods = [x for x in node.get("pods", "-n", "nodeplug")["items"] if "deletionTimestamp" not in x["metadata"]]
        assert all(x["spec"]["containers"][0]["image"].endswith(NEWER) == ("upgrade" in text) for x in pods)
    if text.startswith("helm rollback"):
        node.wait_resource(KVM, 100)
    if text.startswith("helm uninstall"):
        node.wait_resource(KVM, 0)
