"""What may be mounted into a container, and where. Paths are compared as written, without access to the disk."""

NEVER_BELOW = ("/dev", "/proc", "/sys")
"""What is made for each container, on the host and inside."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a container's, which may be one that it shares with a service of the node


def is_plain(path: str) -> bool:
    """Tell whether a path is absolute, without empty, `.` or `..` components."""
    return path.startswith("/") and not {"", ".", ".."} & set(path.removeprefix("/").split("/"))


def is_below(path: str, folder: str) -> bool:
    """Tell whether a plain path is `folder` or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def is_taken(inside: str) -> bool:
    """Tell whether a container has something at this plain path that no mount may cover."""
    return inside == "/" or (inside != SHARED_MEMORY and any(is_below(inside, root) for root in NEVER_BELOW))
