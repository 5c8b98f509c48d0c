"""`mps`: GPUs that NVIDIA's Multi-Process Service shares among the programs of several containers.

A program needs the folder of the service's pipes, a folder of shared memory, and variables with their paths. The
service itself, which divides the memory, is not started here.
Source: NVIDIA's documentation of MPS (environment variables); their device plugin's README (sharing with MPS).
"""

from msgspec import UNSET

from nodeplug.config.document import Document, Path
from nodeplug.config.schema import ResourceEntry
from nodeplug.config.selectors import check_path
from nodeplug.config.settings import Settings
from resources.mounts import SHARED_MEMORY, is_below, is_taken
from resources.resource import Mount

PIPES, PERCENTAGE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def mps_env(entry: ResourceEntry) -> dict[str, str]:
    """Return the variables that locate the service and limit a program's part of a GPU."""
    if entry.mps is UNSET:
        return {}
    has_part = entry.shares > 1 and not entry.shares_of
    part = {PERCENTAGE: str(max(1, 100 // entry.shares))} if has_part else {}
    return {PIPES: entry.mps.pipe_directory, **part}


def mps_mounts(
    document: Document,
    path: Path,
    entry: ResourceEntry,
    settings: Settings,
    others: tuple[Mount, ...],
) -> tuple[Mount, ...]:
    """Return the mounts of the service's folders; findings go to the document.

    `others` are the resource's own mounts.
    """
    if entry.mps is UNSET:
        return ()
    found: list[Mount] = []
    for key, folder, inside in (
        ("pipeDirectory", entry.mps.pipe_directory, entry.mps.pipe_directory),
        ("shmDirectory", entry.mps.shm_directory, SHARED_MEMORY),
    ):
        place = (*path, "mps", key)
        if not check_path(document, place, folder):
            continue
        if inside != SHARED_MEMORY and is_taken(inside):
            document.at(place, f"nothing can be mounted at {inside}", "give the service another folder")
        elif not any(is_below(folder, x) for x in settings.allowed_mounts) and not document.is_wrong(("settings",)):
            message = f"{folder} is not below any of settings.allowedMounts"
            document.at(place, message, "the administrator of the node must allow mounts")
        if any(mount.container_path == inside for mount in others):
            document.at(place, f"`mounts` has something at {inside}, too", "leave that out")
        found.append(Mount(folder, inside, read_only=False))
    return tuple(found)
