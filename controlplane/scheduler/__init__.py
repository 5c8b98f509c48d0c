"""A small scheduler for any API server: makes claims from templates, allocates them, binds pods, cleans up, evicts.

async with Scheduler(Client(from_kubeconfig(path))): ...
"""

from controlplane.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
