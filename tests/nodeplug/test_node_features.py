"""The feature file: its content, when it is written, and when it is removed. It is parsed by nfd-worker's rules."""

import datetime
import json
import signal
from pathlib import Path

import pytest

from hostdevices import Device
from hostdevices.device import AttributeValue, Version
from kubelet.node import Node
from nodeplug import node_features
from nodeplug.node_features import EXPIRES, LARGEST_FILE, NAME, NodeFeatures, feature_lines
from resources.assignment import Assignment
from tests.nodeplug.conftest import StartDaemon, until_logged
from tests.running import running, until
from tests.threads import no_more_threads

NOW = 1_790_000_000.0


def read(path: Path, now: float) -> dict[str, str]:
    """Return the labels of a file at a time, by the rules of NFD's local source."""
    expires, labels = now, {}
    assert path.stat().st_size <= LARGEST_FILE
    for line in map(str.strip, path.read_text().splitlines()):
        if line.startswith("# +expiry-time="):
            expires = datetime.datetime.fromisoformat(line.partition("=")[2]).timestamp()
        elif line and not line.startswith("#") and expires >= now:
            name, _, value = line.partition("=")
            labels[name] = value or "true"
    return labels


def gpu(number: int, **attributes: AttributeValue) -> Device:
    return Device(f"gpu-{number}", "gpu", f"card{number}", attributes=attributes)


def test_features_have_counts_and_common_attributes() -> None:
    alike: dict[str, str | Version] = {"model": "NVIDIA A100-SXM4 (40 GB)", "driverVersion": Version("580.65.6")}
    assignment = Assignment(
        {
            "a.example/gpu": (gpu(0, memory=40 << 30, **alike), gpu(1, memory=40 << 30, **alike)),
            "b.example/gpu": (gpu(2, **alike), gpu(3, driverVersion=Version("580.65.6"), model="another")),
            "c.example/gpu": (),
            "d.example/" + "x" * 57: (gpu(4, model="---"),),
            "e.example/" + "x" * 58: (gpu(5),),
        }
    )
    assert list(feature_lines(assignment)) == [
        "a.example/gpu.count=2",
        "a.example/gpu.model=NVIDIA-A100-SXM4-40-GB",
        "a.example/gpu.driver-version=580.65.6",
        "a.example/gpu.memory=40960",
        "b.example/gpu.count=2",
        "b.example/gpu.driver-version=580.65.6",
        f"d.example/{'x' * 57}.count=1",
    ]


async def test_file_follows_assignments_and_expires(tmp_path: Path) -> None:
    path = tmp_path / "features.d" / NAME
    features = NodeFeatures(path.parent, tmp_path / "state", clock=lambda: NOW)
    async with running(features.run()):
        features.update(Assignment({"a.example/gpu": (gpu(0),)}))
        await until(path.exists)
        assert read(path, NOW) == {"a.example/gpu.count": "1"}
        assert read(path, NOW + EXPIRES + 1) == {}
        written = path.stat().st_ino
        features.update(Assignment({"a.example/gpu": (gpu(1),)}))  # another device with the same labels
        features.update(Assignment({"b.example/gpu": (gpu(0), gpu(1))}))
        await until(lambda: path.stat().st_ino != written)
        assert read(path, NOW) == {"b.example/gpu.count": "2"}
        many = {f"a{number}.example/{'x' * 50}": (gpu(number),) for number in range(1000)}
        features.update(Assignment(many))
        await until(lambda: path.stat().st_size > 60_000)
        assert set(read(path, NOW).values()) == {"1"}
    assert [each.name for each in path.parent.iterdir()] == [NAME]  # a stop keeps the file


@pytest.mark.parametrize("seconds", [86400.0 * 365, -86400.0])
async def test_expiry_follows_a_clock_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A machine without a battery-backed clock starts with its image's time, until it is synchronized."""
    monkeypatch.setattr(node_features, "CLOCK_INTERVAL", 0.01)
    now = NOW
    path = tmp_path / NAME
    features = NodeFeatures(tmp_path, tmp_path / "state", clock=lambda: now)
    async with running(features.run()):
        features.update(Assignment({"a.example/gpu": (gpu(0),)}))
        await until(path.exists)
        now += seconds
        await until(lambda: read(path, now) and not read(path, now + EXPIRES + 1))


async def test_unwritable_folder_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    features = NodeFeatures(tmp_path / "file/below", tmp_path / "state")
    async with running(features.run()):
        for number in (1, 2):
            features.update(Assignment({"a.example/gpu": tuple(map(gpu, range(number)))}))
            await until(lambda: not features._changed.is_set() and features._problem)
    assert caplog.text.count("are not written") == 1


async def test_unwritable_folder_does_not_affect_its_replacement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    typed, meant = (NodeFeatures(tmp_path / each, tmp_path / "state") for each in ("file/below", "features.d"))
    gpus = Assignment({"a.example/gpu": (gpu(0),)})
    async with running(typed.run()):
        typed.update(gpus)
        await until(lambda: "are not written" in caplog.text)
    async with running(meant.run()):
        meant.update(gpus)
        await until(lambda: (tmp_path / "features.d" / NAME).exists() or meant._problem)
    assert meant._problem == ""
    assert "is removed" not in caplog.text


async def test_file_is_written_after_no_thread_could_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_features, "RETRY", 0.01)
    features = NodeFeatures(tmp_path / "features.d", tmp_path / "state")
    async with running(features.run()):
        with no_more_threads():
            features.update(Assignment({"a.example/gpu": (gpu(0),)}))
            await until(lambda: "can't start new thread" in caplog.text)
        await until((tmp_path / "features.d" / NAME).exists)


async def test_file_is_created_moved_and_removed_with_the_setting(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    one, two = (tmp_path / name / NAME for name in ("one", "two"))
    async with Node(socket_dir) as node:
        process = await start(featuresDirectory=str(one.parent))
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        await until(one.exists)
        assert "example.com/fuse.count=1\n" in one.read_text()
        config = tmp_path / "config0.yaml"
        wanted = json.loads(config.read_text())
        wanted["settings"]["featuresDirectory"] = str(two.parent)
        config.write_text(json.dumps(wanted))
        process.send_signal(signal.SIGHUP)
        await until(lambda: two.exists() and not one.exists())
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert two.exists()
        again = await start()
        await until_logged(again, "features of this node are no longer configured")
        assert not two.exists()
