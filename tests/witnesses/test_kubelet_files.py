"""The kubelet's files as witnesses: what they name, what is older than a question, and which files are no answer."""

import os
from pathlib import Path

import pytest

from checkpoint import kubelet_claims, kubelet_devices
from checkpoint.holdings import ClaimEntry, DeviceFile, UnitEntry
from checkpoint.kubelet_devices import PodDevices
from tests.descriptors import no_more_descriptors
from tests.witnesses.kubelet import DRIVER, ScriptedKubelet, claim_state, devices
from witnesses import KubeletFiles

GPU = "example.com/gpu"
UNITS = {(GPU, "gpu-0"): UnitEntry("uid-1", "c", b"")}


@pytest.fixture
def kubelet(socket_dir: Path) -> ScriptedKubelet:
    return ScriptedKubelet(socket_dir)


@pytest.fixture
def files(kubelet: ScriptedKubelet) -> KubeletFiles:
    return KubeletFiles(kubelet.device_plugins, kubelet.root, lambda name: name == GPU, DRIVER)


def test_device_file_yields_pods_and_responses_of_served_units(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    numa = PodDevices("uid-2", "d", GPU, {0: ["gpu-1"], 1: ["gpu-1", "gpu-2"]}, response=b"answered")
    kubelet.write_devices(devices(GPU, "gpu-0"), numa, devices("other.com/gpu", "gpu-9"))
    second = UnitEntry("uid-2", "d", b"answered")
    assert files.devices() == DeviceFile({**UNITS, (GPU, "gpu-1"): second, (GPU, "gpu-2"): second})


def test_claim_file_yields_pods_and_units_of_own_claims(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    kubelet.write_claims(claim_state("u1", "c", pods=["uid-1", "uid-2"]), claim_state("u2", driver="other.com"))
    assert files.claims() == {"u1": ClaimEntry("default", "c", frozenset({"uid-1", "uid-2"}))}
    answered = kubelet_claims.DriverState([kubelet_claims.PreparedDevice("node", "gpu-0")])
    kubelet.write_claims(claim_state("u1", "c", answer=answered))
    assert files.claims() == {"u1": ClaimEntry("default", "c", units=frozenset({"gpu-0"}))}


def test_device_file_is_fresh_only_when_written_after_the_mark(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    kubelet.write_devices(devices(GPU, "gpu-0"))
    files.mark()
    assert files.devices() == DeviceFile(UNITS, is_fresh=False)
    assert files.devices() == DeviceFile(UNITS, is_fresh=False)
    kubelet.write_devices(devices(GPU, "gpu-0"))
    assert files.devices() == DeviceFile(UNITS, is_fresh=True)


def test_missing_device_file_gives_no_answer(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    """Only this file names a running init container, and an administrator could have removed it."""
    files.mark()
    assert files.devices() is None
    kubelet.write_devices()
    assert files.devices() == DeviceFile({}, is_fresh=True)


def test_missing_claim_file_gives_no_answer(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    """A kubelet creates the file when it starts; a DaemonSet might not see its folder."""
    assert files.claims() is None
    kubelet.write_claims()
    assert files.claims() == {}


CHECKSUM = kubelet_devices.encode([devices(GPU, "gpu-0")], {}).replace(b"gpu-0", b"gpu-1")
BEFORE_1_20 = kubelet_devices.encode([PodDevices("uid-1", "c", GPU, flat=["gpu-0"])], {})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"Data":[]}',
        b"[" * 100_000,
        b'{"Data":"' + b"\xff" * 9 + b'"}',
        bytes(70_000),
        CHECKSUM,
        BEFORE_1_20,
    ],
    ids=["empty", "cut off", "another form", "deep", "not UTF-8", "zeros", "another checksum", "before 1.20"],
)
def test_malformed_file_gives_no_answer_until_it_is_replaced(
    kubelet: ScriptedKubelet, files: KubeletFiles, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for name, folder in ((kubelet_devices.FILE_NAME, kubelet.device_plugins), (kubelet_claims.FILE_NAME, kubelet.root)):
        kubelet.write(folder / name, content)
    for _ in range(2):
        assert files.devices() is None
        assert files.claims() is None
    assert len([x for x in caplog.records if "cannot read the kubelet's file" in x.message]) == 2
    kubelet.write_devices(devices(GPU, "gpu-0"))
    kubelet.write_claims(claim_state("u1"))
    assert files.devices() == DeviceFile(UNITS)
    assert set(files.claims() or ()) == {"u1"}


def test_file_is_read_again_after_a_failed_read(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    kubelet.write_devices(devices(GPU, "gpu-0"))
    with no_more_descriptors():
        assert files.devices() is None
    assert files.devices() == DeviceFile(UNITS)


def test_directory_at_the_file_path_gives_no_answer(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    (kubelet.device_plugins / kubelet_devices.FILE_NAME).mkdir()
    (kubelet.root / kubelet_claims.FILE_NAME).mkdir()
    assert files.devices() is None
    assert files.claims() is None


def test_removed_file_gives_no_answer(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    kubelet.write_devices(devices(GPU, "gpu-0"))
    assert files.devices() == DeviceFile(UNITS)
    files.mark()
    os.unlink(kubelet.device_plugins / kubelet_devices.FILE_NAME)
    assert files.devices() is None


def test_file_with_20000_units_is_read(kubelet: ScriptedKubelet, files: KubeletFiles) -> None:
    ids = [f"gpu-{n}" for n in range(20_000)]
    kubelet.write_devices(devices(GPU, *ids))
    found = files.devices()
    assert found is not None
    assert len(found.units) == 20_000
