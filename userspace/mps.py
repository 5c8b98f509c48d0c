"""NVIDIA's Multi-Process Service: whether its control daemon is there, by the socket in the folder of its pipes.

Nobody connects to it: that would be a client. A daemon that was killed leaves its socket behind, and is not missed.
Source: NVIDIA's documentation of MPS (CUDA_MPS_PIPE_DIRECTORY).
"""

from collections.abc import Iterable

from msgspec import structs

from hostdevices import Host, Inventory

_CONTROL = "control"


def with_mps(host: Host, inventory: Inventory, pipe_directories: Iterable[str], root: str = "/") -> Inventory:
    """Return the inventory, NVIDIA's GPUs with those of the folders in which no control daemon is.

    `root` is where the driver is, or the host's root, if that is elsewhere for us: there they may be, too.
    """
    roots = ("", root.rstrip("/"))
    absent = tuple(
        x for x in dict.fromkeys(pipe_directories) if not any(host.exists(f"{above}{x}/{_CONTROL}") for above in roots)
    )
    if not absent:
        return inventory
    gpus = {
        i: structs.replace(x, absent_services=absent)
        for i, x in inventory.devices.items()
        if x.kind == "gpu" and x.attributes.get("driver") == "nvidia"
    }
    return Inventory({**inventory.devices, **gpus}, inventory.problems)
