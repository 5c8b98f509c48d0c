"""docs/start-edge-box.md, run as written, on a machine booted by systemd, with a real kubelet and a stick."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import CHECKOUT
from tests.e2e.debian_box import DebianBox, booted, skip_reason
from tests.e2e.pages import PageUser, steps
from tests.e2e.realnode import BUSYBOX, RealNode
from tests.e2e.sticks import Sticks

pytestmark = pytest.mark.e2e
PAGE = "start-edge-box.md"
ZIGBEE = "example.com/zigbee"
CLONE = "/srv/nodeplug"
"""The path of the clone in the box, which has its own /tmp."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as built by `make deb`, in `dist` of the returned folder."""
    folder = tmp_path_factory.mktemp("clone")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    (folder / "dist").mkdir()
    build = [sys.executable, "-m", "deploy.debian_package", str(wheel), str(folder / "dist")]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    return folder


@pytest.fixture
def box(node: RealNode, sticks: Sticks, package: Path, tmp_path: Path) -> Iterator[DebianBox]:
    """The box; the node's kubelet folder is at /var/lib/kubelet."""
    if reason := skip_reason():
        pytest.skip(reason)
    (sticks.root / "sys/class").mkdir(exist_ok=True)
    binds = {"/var/lib/kubelet": node.kubelet_dir, "/run/cdi": node.cdi_dir, CLONE: package}
    with booted(tmp_path / "box", sticks.root / "sys", binds) as started:
        yield started


def test_edge_box_page_works_as_written(node: RealNode, box: DebianBox, package: Path) -> None:
    page_user = PageUser(lambda typed: box.run(typed, CLONE, answers="y\n"))
    outputs: dict[str, str] = {}
    for kind, text in steps(PAGE):
        if kind == "sh" and "remove" in text:
            upgrades(page_user, package)
            node.wait_resource(ZIGBEE, 2)
            assert node.get("pod", "zigbee2mqtt")["status"]["phase"] == "Running"
        if kind == "sh":
            outputs[text] = page_user.types(text)
        elif text.startswith("# /etc/"):
            page_user.types(f"cat >{text.split()[1]} <<'END'\n{text}END")
        else:
            node.wait_resource(ZIGBEE, 2)
            runs(node, page_user, text)
    outcome = {text.removeprefix("sudo "): printed for text, printed in outputs.items()}
    assert "tty-10c4-ea60" in outcome["nodeplug discover"]
    checked = outcome["nodeplug check /etc/nodeplug/config.yaml"]
    assert re.search(rf"{ZIGBEE} +tty-10c4-ea60-\S+ +/dev/ttyUSB70", checked)
    assert "wrong" not in outcome["nodeplug doctor"] + outcome["nodeplug status"]
    assert "allocated to" in outcome["nodeplug events"]
    assert "registered" in outcome["journalctl -u nodeplug"]
    removed(node, page_user)


def runs(node: RealNode, page_user: PageUser, text: str) -> None:
    """Create the page's pod, with an image of this node, and check for the stick in it."""
    pod = yaml.safe_load(text)
    (container,) = pod["spec"]["containers"]
    container |= {"image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", "sleep 600"]}
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    node.apply(pod)
    name = pod["metadata"]["name"]
    node.wait(f"pod/{name}", ".status.phase", "Running")
    seen = node.kubectl("exec", name, "--", "stat", "-c", "%F %g %a", "/dev/zigbee")
    assert seen == "character special file 1000 660\n"
    page_user.until("nodeplug leases list", name)


def upgrades(page_user: PageUser, package: Path) -> None:
    """Install a newer package, which is this one with another version."""
    (old,) = (package / "dist").glob("*.deb")
    new = Path(re.sub(r"_[0-9.]+_", "_99.0_", str(old)))
    folder = package / "newer"
    subprocess.run(["dpkg-deb", "-R", old, folder], check=True)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*", "Version: 99.0", control.read_text()))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", folder, new], check=True)
    page_user.types(f"sudo apt-get install ./dist/{new.name}")
    page_user.until("nodeplug status", "zigbee2mqtt")
    assert ZIGBEE in page_user.types("cat /etc/nodeplug/config.yaml")


def removed(node: RealNode, page_user: PageUser) -> None:
    """Check what remains until it is purged: the pod with its stick, the configuration and the ledger."""
    node.wait_resource(ZIGBEE, 0)
    assert node.get("pod", "zigbee2mqtt")["status"]["phase"] == "Running"
    page_user.types("ls /etc/nodeplug/config.yaml /var/lib/nodeplug/ledger.sqlite3")
    page_user.types("sudo apt-get purge nodeplug")
    page_user.types("test ! -e /etc/nodeplug && test ! -e /var/lib/nodeplug && test ! -e /opt/nodeplug")
    node.delete_pod("zigbee2mqtt")
