"""A small scheduler: makes claims from templates, allocates them, binds pods, cleans up, evicts; over any API server.

async with Scheduler(Client(from_kubeconfig(path))): ...
"""

from controlplane.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
