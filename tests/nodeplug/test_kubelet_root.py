"""A changed `settings.kubeletRoot`: a kubelet is no witness for the pods of another kubelet."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kubelet.node import Node
from nodeplug.config import Settings
from nodeplug.kubelet_root import other_kubelet, record_kubelet
from nodeplug.parts import CannotOffer, check_kubelet
from tests.checkpoint.build import lease, opened
from tests.nodeplug.conftest import StartDaemon, ended, pod
from tests.nodeplug.control.test_doctor import examined


def settings(folder: Path, root: str) -> Settings:
    return Settings(state_directory=str(folder / "state"), kubelet_root=str(folder / root))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder with the kubelets `a`, whose root is recorded, and `b`."""
    for name in ("a", "b"):
        (tmp_path / name / "device-plugins").mkdir(parents=True)
    record_kubelet(settings(tmp_path, "a"))
    return tmp_path


def rename(folder: Path) -> str:
    (folder / "a").rename(folder / "c")
    return "c"


def link(folder: Path) -> str:
    """A link to a folder, as a container sees the host's folder at another path."""
    (folder / "c").mkdir()
    (folder / "c/device-plugins").symlink_to(folder / "a/device-plugins")
    return "c"


def recreate(folder: Path) -> str:
    shutil.move(folder / "a", folder / "before")
    (folder / "a/device-plugins").mkdir(parents=True)
    return "a"


def remove_record(folder: Path) -> str:
    (folder / "state/kubelet-root").unlink()
    return "b"


@pytest.mark.parametrize("change", [rename, link, recreate, remove_record])
def test_same_or_unrecorded_kubelet_is_accepted(recorded: Path, change: Callable[[Path], str]) -> None:
    now = settings(recorded, change(recorded))
    assert other_kubelet(now) == ""
    record_kubelet(now)
    (recorded / "d").mkdir()
    assert f"{now.kubelet_root}: the kubelet" not in other_kubelet(now)
    assert f"of the kubelet at {now.kubelet_root}: " in other_kubelet(settings(recorded, "d"))


@pytest.mark.parametrize("exists", [True, False], ids=["started", "not started"])
def test_other_kubelet_is_refused_with_instructions(recorded: Path, *, exists: bool) -> None:
    if not exists:
        shutil.rmtree(recorded / "b")
    assert other_kubelet(settings(recorded, "b")) == (
        f"settings.kubeletRoot is {recorded}/b, and the leases in {recorded}/state are of pods of the kubelet at"
        f" {recorded}/a: the kubelet at {recorded}/b cannot say when they end; set kubeletRoot to {recorded}/a, or, if"
        f" the kubelet has moved, remove {recorded}/state/kubelet-root and start nodeplug again"
    )


def test_kubelet_that_is_not_started_is_recognized_by_its_folder(recorded: Path) -> None:
    (recorded / "a").rename(recorded / "c")
    record_kubelet(settings(recorded, "a"))
    assert other_kubelet(settings(recorded, "c")) == ""


def as_a_folder(mark: Path) -> None:
    mark.unlink()
    mark.mkdir()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda mark: mark.write_bytes(b""), "its content is not a record"),
        (lambda mark: mark.write_bytes(b'{"root": 7}'), "its content is not a record"),
        (lambda mark: mark.write_bytes(b'{"root": "\xff"}'), "its content is not a record"),
        (lambda mark: mark.write_bytes(b'{"other": ' + b"[" * 100_000), "its content is not a record"),
        (as_a_folder, "Is a directory"),
    ],
    ids=["empty", "another type", "no text", "too deep", "a folder"],
)
async def test_unreadable_record_is_not_a_missing_one(
    recorded: Path, damage: Callable[[Path], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With leases it is refused, also by the kubelet that it named; without any it is replaced, with a warning."""
    mark = recorded / "state/kubelet-root"
    damage(mark)
    words = other_kubelet(settings(recorded, "a"))
    assert words.startswith(f"{mark} names the kubelet whose pods have the leases, and cannot be read: {why}")
    assert f"the kubelet at {recorded}/a (settings.kubeletRoot), remove {mark} and start nodeplug again" in words
    ledger = await opened(recorded / "state")
    check_kubelet(settings(recorded, "a"), ledger)
    record_kubelet(settings(recorded, "a"))
    assert f"{mark} is replaced, because it cannot be read: {why}" in caplog.text
    await ledger.grant([lease("gpu-0")])
    if mark.is_dir():
        assert f"cannot be recorded in {mark}" in caplog.text
        with pytest.raises(CannotOffer, match="cannot be read"):
            check_kubelet(settings(recorded, "a"), ledger)
    else:
        assert other_kubelet(settings(recorded, "b")).startswith("settings.kubeletRoot is")
        check_kubelet(settings(recorded, "a"), ledger)
    await ledger.close()


async def test_leases_stay_when_kubelet_root_changes_to_another_kubelet(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    """Neither while the daemon runs, nor at its start. Without leases, any kubelet is accepted."""
    ours, other = socket_dir / "a", socket_dir / "b"
    async with Node(ours) as node, Node(other):
        daemon = await start(kubeletRoot=str(ours))
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (await node.admit(pod("a"))).phase == "Running"
        path = tmp_path / "config0.yaml"
        content = json.loads(path.read_text())
        content["settings"]["kubeletRoot"] = str(other)
        path.write_text(json.dumps(content))
        assert daemon.stderr is not None
        async with asyncio.timeout(30):
            while b"cannot say when they end" not in await daemon.stderr.readline():
                pass
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)  # as before
        daemon.terminate()
        await ended(daemon)
        words = (
            f"settings.kubeletRoot is {other}, and the leases in {tmp_path}/state are of pods of the kubelet at {ours}"
        )
        code, errors = await ended(await start(path=path))
        assert code == 1
        assert words in errors
        assert words in "".join(says for _, subject, says in (await examined(path, tmp_path / "host"))[1])
        ledger = await opened(tmp_path / "state")
        assert [x.unit for x in ledger.leases()] == ["misc-fuse.0"]
        await ledger.end(ledger.leases())
        check_kubelet(settings(socket_dir, "b"), ledger)
        await ledger.close()


async def test_other_kubelet_is_refused_when_leases_are_unreadable(recorded: Path) -> None:
    (recorded / "state/ledger.sqlite3").mkdir()
    ledger = await opened(recorded / "state")
    assert not ledger.is_loaded
    check_kubelet(settings(recorded, "a"), ledger)
    with pytest.raises(CannotOffer, match="cannot say when they end"):
        check_kubelet(settings(recorded, "b"), ledger)
    await ledger.close()
