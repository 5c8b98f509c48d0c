"""What can be mounted into a container, and where."""

from resources.mounts import is_below, is_plain, is_taken


def test_mount_paths_are_classified() -> None:
    assert [is_plain(path) for path in ("/a/b", "/a/../b", "/a//b", "a", "", "/")] == [True, *[False] * 5]
    assert [is_below(path, "/opt/x") for path in ("/opt/x", "/opt/x/y", "/opt/xy", "/opt")] == [
        True,
        True,
        False,
        False,
    ]
    assert is_below("/a", "/")
    assert all(map(is_taken, ("/", "/dev/fuse", "/proc", "/sys/class")))
    assert not any(map(is_taken, ("/device", "/opt/dev")))
