"""The uids of pods that have a cgroup, in every layout of kubelets; None instead of an incomplete set."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hostdevices import Host, pod_cgroups
from hostdevices.pod_cgroups import pods_with_processes, running_pods, shows_processes
from hostdevices.recording import Entry, Recording
from hostdevices.tree import Folder
from tests.descriptors import no_more_descriptors

GUARANTEED = "2c48913c-b29f-11e7-9350-020968147796"
BURSTABLE = "0d5b3a4e-7a0d-4a64-9ac4-1f1a6a1b2c3d"
BEST_EFFORT = "ffffffff-0000-4000-8000-000000000001"
STATIC = "26ce0c8f5d1d2b8ab8b1a8e7a0c3e2f1"
PODS = frozenset((GUARANTEED, BURSTABLE, BEST_EFFORT, STATIC))


def slice_of(uid: str, parent: str) -> str:
    return f"{parent}-pod{uid.replace('-', '_')}.slice"


def cgroupfs(root: Path) -> None:
    for pod in (
        f"pod{GUARANTEED}",
        f"burstable/pod{BURSTABLE}",
        f"besteffort/pod{BEST_EFFORT}",
        f"burstable/pod{STATIC}",
    ):
        (root / "kubepods" / pod / "3f2a9c").mkdir(parents=True)
        (root / "kubepods" / pod / "crio-3f2a9c/podnot-one").mkdir(parents=True)  # a container can have such a name


def systemd(root: Path, prefix: str = "kubepods") -> None:
    top = root / f"{prefix}.slice"
    burstable, best_effort = f"{prefix}-burstable", f"{prefix}-besteffort"
    for pod in (
        slice_of(GUARANTEED, prefix),
        f"{burstable}.slice/{slice_of(BURSTABLE, burstable)}",
        f"{best_effort}.slice/{slice_of(BEST_EFFORT, best_effort)}",
        f"{burstable}.slice/{slice_of(STATIC, burstable)}",
    ):
        (top / pod / "cri-containerd-3f2a9c.scope").mkdir(parents=True)


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    """The root of an empty hierarchy of version 2, with the units that every systemd has."""
    root = tmp_path / "sys/fs/cgroup"
    for unit in ("init.scope", "system.slice/sshd.service", "user.slice/user-0.slice/session-1.scope"):
        (root / unit).mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    return root


def host(cgroups: Path) -> Host:
    return Host(cgroups.parents[2])


@pytest.mark.parametrize("prefix", ["kubepods", "kubelet-kubepods", "custom-node-kubepods"])
def test_pods_are_found_with_systemd_driver(cgroups: Path, prefix: str) -> None:
    *above, _ = prefix.split("-")
    folder = cgroups.joinpath(*(f"{'-'.join(above[: depth + 1])}.slice" for depth in range(len(above))))
    systemd(folder, prefix)
    assert running_pods(host(cgroups)) == PODS


@pytest.mark.parametrize("below", ["", "kubelet", "k3s", "docker/0a1b2c3d/kubelet"])
def test_pods_are_found_with_cgroupfs_driver(cgroups: Path, below: str) -> None:
    cgroupfs(cgroups / below)
    assert running_pods(host(cgroups)) == PODS


@pytest.mark.parametrize("make", [systemd, cgroupfs])
def test_pods_are_found_in_cgroup_version_1(cgroups: Path, make: object) -> None:
    (cgroups / "cgroup.controllers").unlink()
    for hierarchy in ("cpu,cpuacct", "memory", "systemd", "unified"):
        (cgroups / hierarchy).mkdir()
    (cgroups / "cpu").symlink_to("cpu,cpuacct")
    assert callable(make)
    make(cgroups / "memory")
    assert running_pods(host(cgroups)) == PODS  # any hierarchy is sufficient
    (cgroups / "systemd/kubepods/podearly").mkdir(parents=True)
    assert running_pods(host(cgroups)) == PODS | {"early"}  # a pod that is starting or ending


@pytest.mark.parametrize("make", [systemd, cgroupfs])
@pytest.mark.parametrize(
    ("hierarchy", "file", "texts"),
    [
        ("", "cgroup.events", ("populated 0\nfrozen 0\n", "populated 1\nfrozen 0\n")),
        ("pids", "pids.current", ("0\n", "12\n")),
    ],
    ids=["version 2", "version 1"],
)
def test_pods_with_processes_are_found(
    cgroups: Path, make: Callable[[Path], None], hierarchy: str, file: str, texts: tuple[str, str]
) -> None:
    if hierarchy:
        (cgroups / "cgroup.controllers").unlink()
        for each in ("memory", "systemd", hierarchy):
            make(cgroups / each)
    else:
        make(cgroups)
    for uid, has_processes in {BURSTABLE: False, BEST_EFFORT: True, STATIC: True}.items():  # the fourth's is gone
        (path,) = (cgroups / hierarchy).glob(f"**/*pod{uid.replace('-', '[-_]')}*")
        (path / file).write_text(texts[has_processes])
    assert shows_processes(host(cgroups))
    assert pods_with_processes(host(cgroups), {GUARANTEED, BURSTABLE, BEST_EFFORT}) == frozenset({BEST_EFFORT})
    assert pods_with_processes(host(cgroups), PODS) == frozenset({BEST_EFFORT, STATIC})
    shutil.rmtree(cgroups)
    assert pods_with_processes(host(cgroups), PODS) == frozenset()


def test_other_hierarchies_do_not_hide_processes(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of version 1 with many containers: all hierarchies together have more folders than are listed."""
    monkeypatch.setattr("hostdevices.pod_cgroups._MAX_FOLDERS", 40)
    (cgroups / "cgroup.controllers").unlink()
    for hierarchy in ("cpu", "memory", "pids", "zzz"):
        for number in range(20):
            (cgroups / hierarchy / f"docker-{number}").mkdir(parents=True)
        systemd(cgroups / hierarchy)
    (path,) = (cgroups / "pids").glob(f"**/*pod{BEST_EFFORT.replace('-', '[-_]')}*")
    (path / "pids.current").write_text("3\n")
    assert pods_with_processes(host(cgroups), PODS) == frozenset({BEST_EFFORT})


def test_no_processes_are_shown_without_the_controller_for_pids(cgroups: Path) -> None:
    (cgroups / "cgroup.controllers").unlink()
    systemd(cgroups / "memory")
    assert not shows_processes(host(cgroups))
    assert pods_with_processes(host(cgroups), PODS) == frozenset()


@pytest.mark.parametrize("namespace", [False, True], ids=["", "from another PID namespace"])
def test_kernel_shows_a_pods_processes(namespace: bool) -> None:
    """A pod's own PID namespace hides processes in the file cgroup.procs of version 1."""
    hierarchy = Path("/sys/fs/cgroup")
    if not (hierarchy / "cgroup.controllers").exists():
        hierarchy /= "pids"
    pod = hierarchy / f"nodeplug-test-{os.getpid()}/kubepods/pod{GUARANTEED}"
    try:
        (pod / "container").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no cgroup can be created: {error}")
    ask = f"from tests.hostdevices.test_pod_cgroups import *; print(pods_with_processes(Host(), {PODS}))"
    command = [*(["unshare", "--pid", "--fork"] if namespace else []), sys.executable, "-c", ask]
    process = subprocess.Popen(["sleep", "60"])
    try:
        (pod / "container/cgroup.procs").write_text(str(process.pid))
        assert subprocess.check_output(command, text=True) == f"{frozenset({GUARANTEED})}\n"
        process.kill()
        process.wait()
        assert pods_with_processes(Host(), PODS) == frozenset()
    finally:
        process.kill()
        process.wait()
        for folder in (pod / "container", pod, *pod.parents[:2]):
            folder.rmdir()


def test_empty_root_has_no_pods_and_missing_root_is_unknown(cgroups: Path) -> None:
    assert running_pods(host(cgroups)) is None
    (cgroups / "kubepods.slice/kubepods-burstable.slice").mkdir(parents=True)
    (cgroups / "kubepods.slice/kubepods-besteffort.slice").mkdir()
    assert running_pods(host(cgroups)) == frozenset()


def test_pods_of_all_roots_are_found(cgroups: Path) -> None:
    (cgroups / "kubepods").mkdir()  # of a kubelet with another cgroup driver
    systemd(cgroups / "kubelet.slice", "kubelet-kubepods")
    assert running_pods(host(cgroups)) == PODS


class Unreadable(Folder):
    """A tree with one unreadable folder."""

    def __init__(self, root: Path, path: str) -> None:
        super().__init__(str(root.resolve()))
        self._unreadable = path

    def _folders(self, real: str) -> list[str] | None:
        return None if real == self._unreadable else super()._folders(real)


@pytest.mark.parametrize("part", ["", "/system.slice", "/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice"])
def test_unreadable_folder_makes_pods_unknown(cgroups: Path, part: str) -> None:
    systemd(cgroups)
    root = cgroups.parents[2]
    assert running_pods(Host(root, Unreadable(root, f"/sys/fs/cgroup{part}"))) is None
    assert running_pods(Host(root, Unreadable(root, "/sys/fs/cgroup/system.slice/sshd.service"))) == PODS


def test_pods_with_processes_are_found_when_another_cgroup_ends(cgroups: Path) -> None:
    systemd(cgroups)
    (pod,) = cgroups.rglob(f"*{GUARANTEED.replace('-', '_')}*")
    (pod / "cgroup.events").write_text("populated 1\n")
    root = cgroups.parents[2]
    assert pods_with_processes(Host(root, Unreadable(root, "/sys/fs/cgroup/system.slice")), PODS) == frozenset(
        {GUARANTEED}
    )


def test_missing_cgroups_make_pods_unknown(tmp_path: Path) -> None:
    assert running_pods(Host(tmp_path, Recording([Entry("/sys/fs", "there")]))) is None


def test_too_many_folders_make_pods_unknown(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd(cgroups)
    monkeypatch.setattr(pod_cgroups, "_MAX_FOLDERS", 5)
    assert running_pods(host(cgroups)) is None


def test_cgroups_of_containers_are_not_listed(cgroups: Path) -> None:
    listed: list[str] = []

    class ListingRecorder(Folder):
        def _folders(self, real: str) -> list[str] | None:
            listed.append(real)
            return super()._folders(real)

    systemd(cgroups)
    root = cgroups.parents[2]
    assert running_pods(Host(root, ListingRecorder(str(root.resolve())))) == PODS
    assert not [path for path in listed if "-pod" in path or "sshd" in path]


def test_processes_are_unknown_without_free_descriptors(cgroups: Path) -> None:
    systemd(cgroups)
    (pod,) = cgroups.rglob(f"*{GUARANTEED.replace('-', '_')}*")
    (pod / "cgroup.events").write_text("populated 1\n")
    with no_more_descriptors():
        assert pods_with_processes(host(cgroups), PODS) is None
    assert pods_with_processes(host(cgroups), PODS) == frozenset({GUARANTEED})
