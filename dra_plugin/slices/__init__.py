"""ResourceSlices: what the driver wants published, and the controller that keeps it so.

controller = Controller(client, "nodeplug.dev", Owner.node("worker-1"))
await controller.start()
controller.update(DriverResources({"worker-1": Pool(slices=(Slice(devices=...),))}))
"""

from dra_plugin.slices.controller import Controller
from dra_plugin.slices.desired import DriverResources, InvalidPool, Pool, Slice
from dra_plugin.slices.dropped import DroppedFieldsError
from dra_plugin.slices.owner import Owner
from dra_plugin.slices.publisher import ErrorHandler, Statistics, SyncFailed
from dra_plugin.slices.queue import Limits

__all__ = [
    "Controller",
    "DriverResources",
    "DroppedFieldsError",
    "ErrorHandler",
    "InvalidPool",
    "Limits",
    "Owner",
    "Pool",
    "Slice",
    "Statistics",
    "SyncFailed",
]
