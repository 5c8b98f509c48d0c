"""A changed `settings.cdiDirectory`: none of our files stays in the old folder, which a runtime can still read."""

import json
import logging
from pathlib import Path

import pytest

from kubelet.node import Node
from nodeplug.config import Settings
from nodeplug.moved_specs import remove_specs_of_previous_folder
from tests.nodeplug.conftest import StartDaemon, pod
from tests.running import until

OURS = ("nodeplug-device-plugin~example.com~fuse.json", "nodeplug-dra~example.com~claim~uid.json")
TOOLKITS = "nvidia.yaml"


async def test_running_daemon_moves_its_specs_to_the_new_folder(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    async with Node(socket_dir) as node:
        await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (await node.admit(pod("a"))).phase == "Running"
        assert [x.name for x in (tmp_path / "cdi").iterdir()] == [OURS[0]]
        path = tmp_path / "config0.yaml"
        content = json.loads(path.read_text())
        content["settings"]["cdiDirectory"] = str(tmp_path / "other")
        path.write_text(json.dumps(content))
        await until((tmp_path / "other" / OURS[0]).exists)
        assert list((tmp_path / "cdi").iterdir()) == []
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert node.allocations("a", "c") == {"example.com/fuse": ["misc-fuse.0"]}


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A folder of CDI specs with files of a daemon and of other programs."""
    folder = tmp_path / "before"
    folder.mkdir()
    (tmp_path / "state").mkdir()
    remove_specs_of_previous_folder(settings(tmp_path, folder))
    for name in (*OURS, TOOLKITS):
        (folder / name).touch()
    return folder


def settings(folder: Path, cdi: Path) -> Settings:
    return Settings(state_directory=str(folder / "state"), cdi_directory=str(cdi))


def test_specs_of_other_programs_stay(before: Path, tmp_path: Path) -> None:
    remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "now"))
    assert [x.name for x in before.iterdir()] == [TOOLKITS]
    (before / OURS[0]).touch()  # written later by another daemon
    remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "now"))
    assert (before / OURS[0]).exists()


def test_symlink_to_the_same_folder_removes_nothing(before: Path, tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(before)
    remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "run"))
    assert sorted(x.name for x in before.iterdir()) == [*OURS, TOOLKITS]


def test_missing_previous_folder_is_logged_and_forgotten(
    before: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No removal is reported: a pod without that mount leaves its specs on the node."""
    before.rename(tmp_path / "unmounted")
    with caplog.at_level(logging.INFO):
        remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "now"))
    assert f"{before} is not visible here: on the node, remove nodeplug-* in it" in caplog.text
    assert "are removed" not in caplog.text
    (tmp_path / "unmounted").rename(before)
    remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "now"))
    assert sorted(x.name for x in before.iterdir()) == [*OURS, TOOLKITS]


def test_failed_removal_is_logged_and_retried(before: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (before / OURS[0]).unlink()
    (before / OURS[0]).mkdir()
    for _ in range(2):
        remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "now"))
        assert f"CDI specs stay in the previous folder {before}" in caplog.text
        caplog.clear()
    (before / OURS[0]).rmdir()
    with caplog.at_level(logging.INFO):
        remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "now"))
    assert f"the previous ones in {before} are removed" in caplog.text


def test_state_path_that_is_a_file_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    remove_specs_of_previous_folder(settings(tmp_path, tmp_path / "now"))
    assert (tmp_path / "state").read_text() == ""
