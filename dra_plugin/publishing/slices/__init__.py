"""ResourceSlices: what the driver wants published, and the controller that keeps it on the API server.

controller = Controller(client, "nodeplug.dev", Owner.node("worker-1"))
controller.update(DriverResources({"worker-1": Pool(slices=(Slice(devices=...),))}))
await controller.run()
"""

from dra_plugin.publishing.slices.controller import Controller
from dra_plugin.publishing.slices.desired import DriverResources, InvalidPool, Pool, Slice
from dra_plugin.publishing.slices.dropped import DroppedFieldsError
from dra_plugin.publishing.slices.owner import Owner
from dra_plugin.publishing.slices.publisher import ErrorHandler, Statistics, SyncFailed
from dra_plugin.publishing.slices.queue import Limits

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
