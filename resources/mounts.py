"""What may be mounted into a container, and where. Paths are compared as written, without access to the disk."""

NEVER_BELOW = ("/dev", "/proc", "/sys")
"""Folders that are created for each container, on the host and inside."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a container's, possibly one that it shares with a service of the node


def is_plain(path: str) -> bool:
    """Return whether a path is absolute, without empty, `.` or `..` components."""
    return path.startswith("/") and not {"", ".", ".."} & set(path.removeprefix("/").split("/"))


def is_below(path: str, folder: str) -> bool:
    """Return whether a plain path is `folder` or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def is_taken(inside: str) -> bool:
    """Return whether a container has something at this plain path that no mount must cover."""
    return inside == "/" or (inside != SHARED_MEMORY and any(is_below(inside, root) for root in NEVER_BELOW))
