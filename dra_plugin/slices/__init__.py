"""ResourceSlices: what the driver wants published, and the controller that keeps it so.

controller = Controller(client, "nodeplug.dev", Owner.node("worker-1"))
await controller.start()
controller.update(DriverResources({"worker-1": Pool(slices=(Slice(devices=...),))}))
"""

from dra_plugin.slices.controller import Controller, ErrorHandler, Statistics
from dra_plugin.slices.desired import DriverResources, InvalidPool, Pool, Slice
from dra_plugin.slices.owner import Owner

__all__ = [
    "Controller",
    "DriverResources",
    "ErrorHandler",
    "InvalidPool",
    "Owner",
    "Pool",
    "Slice",
    "Statistics",
]
