"""`settings.healthDirectory`: verdicts of an administrator's own probes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from hostdevices import HEALTHY, scan
from kubelet.node import Node
from nodeplug.health_files import HealthFiles
from tests.deviceplugin.node import pod
from tests.hostdevices.machine import GPU_UUID, build_machine
from tests.nodeplug.conftest import StartDaemon

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
GPU = "gpu-0000-81-00-0"
INSTANCES = {f"{GPU}-gi1-ci0", f"{GPU}-gi2-ci0"}
STICK, PORT = "usb-0403-6001-a50285bi-a0b615c19c", "tty-0403-6001-a50285bi-if0-d6153ec19d"


class ProbeFolder:
    """A made-up machine, and the folder of its probes."""

    def __init__(self, folder: Path) -> None:
        self.inventory = scan(build_machine(folder / "host").host)
        self.folder = folder / "health"
        self.probes = HealthFiles(self.folder)

    def write_verdict(self, name: str, text: str = "") -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def unhealthy(self) -> dict[str, str]:
        found = self.probes.enrich(self.inventory).devices
        return {x.id: x.health.reason for x in found.values() if x.health != HEALTHY}

    def problems(self) -> list[str]:
        return [f"{Path(x.where).name}: {x.reason}" for x in self.probes.enrich(self.inventory).problems]


@pytest.fixture
def probed(tmp_path: Path) -> ProbeFolder:
    return ProbeFolder(tmp_path)


@pytest.mark.parametrize(
    ("name", "unhealthy_ids"),
    [
        (GPU, {GPU, *INSTANCES}),
        (GPU_UUID, {GPU}),
        ("0000:81:00.0", {"pci-0000-81-00-0", GPU, *INSTANCES}),
        (STICK, {STICK, PORT}),
    ],
)
def test_file_name_marks_the_device_and_its_parts_unhealthy(
    probed: ProbeFolder, name: str, unhealthy_ids: set[str]
) -> None:
    probed.write_verdict(name, "  fails its test \nlong words\n")
    assert probed.unhealthy() == dict.fromkeys(unhealthy_ids, f"fails its test (says {probed.folder / name})")
    (probed.folder / name).unlink()
    assert probed.unhealthy() == {}
    assert probed.problems() == []


def test_empty_or_unreadable_file_marks_the_device_unhealthy(probed: ProbeFolder) -> None:
    assert (probed.unhealthy(), probed.problems()) == ({}, [])  # the folder does not exist
    probed.write_verdict("misc-kvm")
    probed.write_verdict("misc-tun", "\x1b[31mred" + "x" * 5000)
    probed.write_verdict(f".{GPU}", "being written")
    os.mkfifo(probed.folder / GPU)  # nothing can be read, and the daemon does not wait for it
    found = probed.unhealthy()
    assert found["misc-kvm"] == f"reported by {probed.folder}/misc-kvm"
    assert found["misc-tun"].startswith("\\x1b[31mredxxx")
    assert len(found["misc-tun"]) < 200 + len(str(probed.folder))
    assert found[GPU] == f"reported by {probed.folder}/{GPU}"
    assert found.keys() == {"misc-kvm", "misc-tun", GPU, *INSTANCES}


def test_file_for_an_unknown_device_is_logged_once(probed: ProbeFolder, caplog: pytest.LogCaptureFixture) -> None:
    probed.write_verdict("gpu-0")
    for _ in range(2):
        assert probed.problems() == ["gpu-0: no device here has this name; `nodeplug discover` shows the ids"]
    assert len(caplog.records) == 1
    (probed.folder / "gpu-0").unlink()
    probed.folder.rmdir()
    probed.folder.write_text("")
    assert probed.problems() == ["health: not read: Not a directory"]
    assert probed.unhealthy() == {}


async def test_device_marked_unhealthy_is_not_allocatable(start: StartDaemon, socket_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state/health"
    async with Node(socket_dir) as node:
        await start(healthDirectory=str(folder), healthSeconds=1)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (await node.admit(pod("a", "example.com/fuse"))).phase == "Running"
        folder.mkdir()
        (folder / "misc-fuse").write_text("does not answer")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 30)
        assert node.allocations("a", "c"), "the pod keeps it"
        (folder / "misc-fuse").unlink()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)


def test_probe_script_of_the_page_marks_a_hot_gpu(probed: ProbeFolder, tmp_path: Path) -> None:
    """The page's script, with a tool whose output the test sets."""
    section = PAGE.read_text().partition("\n## Health from your own probes\n")[2].partition("\n## ")[0]
    found = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert found is not None
    script = found[1].replace("/var/lib/nodeplug/health", str(probed.folder))
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    for degrees in (95, 40):
        tool.write_text(f"#!/bin/sh\necho '{GPU_UUID}, {degrees}'\n")
        tool.chmod(0o755)
        env = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-eu"], input=script, text=True, env=env, check=True)
        expected = {GPU: f"95 °C (says {probed.folder / GPU_UUID})"} if degrees > 90 else {}
        assert probed.unhealthy() == expected
