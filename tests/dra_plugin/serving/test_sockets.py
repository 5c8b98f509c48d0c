"""Socket names: short enough, with the driver's name, and unique for each instance."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.serving.sockets import plugin_socket, registration_socket, remove_dead_instances
from grpcunix import MAX_PATH
from tests.dra_scenarios import scenario

REGISTRY = Path("/var/lib/kubelet/plugins_registry")
PLUGINS = Path("/var/lib/kubelet/plugins")
UID = "68de2e67-8ba5-41b2-b4a6-0d9b3c9d2a3c"
OTHER_UID = "4b8a9e8e-1f62-4a0c-9d0e-7d1f0f0a5b11"

drivers = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", fullmatch=True)
uids = st.uuids().map(str) | st.text(min_size=1, max_size=200)


@scenario(1, 6)
@given(drivers | st.text(min_size=1, max_size=150), uids)
def test_registration_socket_path_fits_and_is_deterministic(driver: str, uid: str) -> None:
    path = registration_socket(REGISTRY, driver, uid)
    assert len(os.fsencode(path)) <= MAX_PATH
    assert path.parent == REGISTRY
    assert path == registration_socket(REGISTRY, driver, uid)


@scenario(8)
@given(drivers, uids)
def test_plugin_socket_path_fits_below_the_kubelet_folder(driver: str, uid: str) -> None:
    path = plugin_socket(PLUGINS / driver, driver, uid)
    assert len(os.fsencode(path)) <= MAX_PATH
    assert path.parent == PLUGINS / driver
    assert path.suffix == ".sock"


@scenario(7, 10)
@given(drivers, drivers, uids, uids)
def test_different_instances_have_different_socket_names(driver: str, other: str, uid: str, other_uid: str) -> None:
    if uid != other_uid:
        assert registration_socket(REGISTRY, driver, uid) != registration_socket(REGISTRY, driver, other_uid)
        data = PLUGINS / driver
        assert plugin_socket(data, driver, uid) != plugin_socket(data, driver, other_uid)
    if driver != other:
        assert registration_socket(REGISTRY, driver, uid) != registration_socket(REGISTRY, other, uid)


@scenario(2)
def test_short_driver_name_keeps_the_whole_uid() -> None:
    name = registration_socket(REGISTRY, "example.com", UID).name
    assert name == f"example.com-{UID}-reg.sock"


@scenario(3)
def test_long_driver_name_is_followed_by_a_hashed_uid() -> None:
    name = registration_socket(REGISTRY, "gpu.dra-example-driver.sigs.k8s.io", UID).name
    assert name == "gpu.dra-example-driver.sigs.k8s.io-iygwTkqzfyc-reg.sock"


@scenario(4)
def test_longest_driver_name_is_hashed_with_the_uid() -> None:
    name = registration_socket(REGISTRY, "d" * 100, UID).name
    assert name.startswith("dra-")
    assert len(name) == len("dra-") + 22 + len("-reg.sock")


@scenario(5)
def test_long_folder_shortens_the_socket_name() -> None:
    folder = Path("/" + "f" * 60)
    assert registration_socket(folder, "example.com", UID).name.startswith("example.com-")
    assert UID not in registration_socket(folder, "example.com", UID).name
    assert (
        registration_socket(folder, "example.com", UID).name
        != registration_socket(folder, "example.com", OTHER_UID).name
    )


@scenario(8)
@pytest.mark.parametrize(("length", "whole"), [(36, True), (37, False), (63, False)])
def test_plugin_socket_keeps_the_uid_up_to_107_bytes(length: int, whole: bool) -> None:
    driver = "d" * length
    path = plugin_socket(PLUGINS / driver, driver, UID)
    assert (path.name == f"dra-{UID}.sock") is whole
    assert len(str(path)) <= 107


@scenario(9)
def test_instance_without_uid_has_plain_socket_names() -> None:
    assert plugin_socket(PLUGINS / "d", "d").name == "dra.sock"
    assert registration_socket(REGISTRY, "d").name == "d-reg.sock"


@pytest.mark.parametrize("uid", ["../../etc/x", "a/b"])
def test_uid_with_slashes_stays_in_the_folder(uid: str) -> None:
    assert registration_socket(REGISTRY, "d", uid).parent == REGISTRY
    assert plugin_socket(PLUGINS, "d", uid).parent == PLUGINS


def test_only_sockets_of_killed_instances_are_removed(socket_dir: Path) -> None:
    registry, data = socket_dir / "registry", socket_dir / "data"
    registry.mkdir()
    data.mkdir()
    hashed = registration_socket(Path("/" + "f" * 60), "d.example.com", UID).name
    ours = ["d.example.com-reg.sock", f"d.example.com-{UID}-reg.sock", hashed]
    theirs = ["d.example.com-two-reg.sock", "d.example.com-abcdefghijk-reg.sock", f"e.example.com-{UID}-reg.sock"]
    for path in [*(registry / name for name in (*ours, *theirs)), data / f"dra-{UID}.sock", data / "other.sock"]:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(registry / f"d.example.com-{OTHER_UID}-reg.sock"))
        live.listen()
        remove_dead_instances(registry, data, "d.example.com")
        assert sorted(os.listdir(registry)) == sorted([*theirs, f"d.example.com-{OTHER_UID}-reg.sock"])
    assert os.listdir(data) == ["other.sock"]
