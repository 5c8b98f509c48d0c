"""A changed `settings.kubeletRoot`: a kubelet is no witness for the pods of another kubelet."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kubelet.node import Node
from nodeplug.config import Settings
from nodeplug.fronts import CannotOffer, check_kubelet
from nodeplug.kubelet_root import other_kubelet, record_kubelet
from tests.checkpoint.build import lease, opened
from tests.nodeplug.conftest import StartDaemon, ended, pod
from tests.nodeplug.control.test_doctor import examined


def settings(folder: Path, root: str) -> Settings:
    return Settings(state_directory=str(folder / "state"), kubelet_root=str(folder / root))


@pytest.fixture
def noted(tmp_path: Path) -> Path:
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


def set_up_again(folder: Path) -> str:
    shutil.move(folder / "a", folder / "before")
    (folder / "a/device-plugins").mkdir(parents=True)
    return "a"


def remove_the_note(folder: Path) -> str:
    (folder / "state/kubelet-root").unlink()
    return "b"


@pytest.mark.parametrize("change", [rename, link, set_up_again, remove_the_note])
def test_a_kubelet_that_is_the_same_or_that_nobody_has_noted(noted: Path, change: Callable[[Path], str]) -> None:
    now = settings(noted, change(noted))
    assert other_kubelet(now) == ""
    record_kubelet(now)
    (noted / "d").mkdir()
    assert f"{now.kubelet_root}: the kubelet" not in other_kubelet(now)
    assert f"of the kubelet at {now.kubelet_root}: " in other_kubelet(settings(noted, "d"))


@pytest.mark.parametrize("there", [True, False], ids=["there", "not started yet"])
def test_another_kubelet_says_what_to_do(noted: Path, *, there: bool) -> None:
    if not there:
        shutil.rmtree(noted / "b")
    assert other_kubelet(settings(noted, "b")) == (
        f"settings.kubeletRoot is {noted}/b, and the leases in {noted}/state are of pods of the kubelet at {noted}/a:"
        f" the kubelet at {noted}/b cannot say when they end; set kubeletRoot to {noted}/a, or, if the kubelet has"
        f" moved, remove {noted}/state/kubelet-root and start nodeplug again"
    )


def test_a_kubelet_that_has_not_started_yet_is_still_known_by_its_folder(noted: Path) -> None:
    (noted / "a").rename(noted / "c")
    record_kubelet(settings(noted, "a"))
    assert other_kubelet(settings(noted, "c")) == ""


def as_a_folder(mark: Path) -> None:
    mark.unlink()
    mark.mkdir()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda mark: mark.write_bytes(b""), "its content is not a record"),
        (lambda mark: mark.write_bytes(b'{"root": 7}'), "its content is not a record"),
        (lambda mark: mark.write_bytes(b'{"root": "\xff"}'), "its content is not a record"),
        (as_a_folder, "Is a directory"),
    ],
    ids=["empty", "another type", "no text", "a folder"],
)
async def test_a_record_that_cannot_be_read_is_not_a_missing_one(
    noted: Path, damage: Callable[[Path], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With leases it is refused, also by the kubelet that it named; without any it is replaced, with a warning."""
    mark = noted / "state/kubelet-root"
    damage(mark)
    words = other_kubelet(settings(noted, "a"))
    assert words.startswith(f"{mark} names the kubelet whose pods have the leases, and cannot be read: {why}")
    assert f"the kubelet at {noted}/a (settings.kubeletRoot), remove {mark} and start nodeplug again" in words
    ledger = await opened(noted / "state")
    check_kubelet(settings(noted, "a"), ledger)
    record_kubelet(settings(noted, "a"))
    assert f"{mark} is replaced, because it cannot be read: {why}" in caplog.text
    await ledger.grant([lease("gpu-0")])
    if mark.is_dir():
        assert f"cannot be recorded in {mark}" in caplog.text
        with pytest.raises(CannotOffer, match="cannot be read"):
            check_kubelet(settings(noted, "a"), ledger)
    else:
        assert other_kubelet(settings(noted, "b")).startswith("settings.kubeletRoot is")
        check_kubelet(settings(noted, "a"), ledger)
    await ledger.close()


async def test_no_lease_ends_by_the_words_of_another_kubelet(
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


async def test_what_is_leased_and_cannot_be_read_may_be_of_another_kubelet(noted: Path) -> None:
    (noted / "state/ledger.sqlite3").mkdir()
    ledger = await opened(noted / "state")
    assert not ledger.is_loaded
    check_kubelet(settings(noted, "a"), ledger)
    with pytest.raises(CannotOffer, match="cannot say when they end"):
        check_kubelet(settings(noted, "b"), ledger)
    await ledger.close()
