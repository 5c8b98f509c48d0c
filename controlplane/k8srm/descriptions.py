"""The meaning of the fields of the prototype's kinds, for `kubectl explain`. Source: its API documentation."""

_CONSTRAINTS = "A CEL expression over a device's attributes."
_POOL_NAME = "The pool that the device belongs to."
_DEVICE_NAME = "The device's name in its pool."
_ALLOCATIONS = (
    "Amounts of the device's resources that are allocated to the claim: a part of its requests, or more if the device"
    " allocates whole blocks only."
)
_MATCH = "Names of attributes that must have the same value for all allocated devices"

_FIELDS = {
    "Attribute.name": "Name of the attribute. One of the values below is set.",
    "Attribute.stringValue": "A string.",
    "Attribute.intValue": "An integer.",
    "Attribute.quantityValue": "A quantity; 1Gi equals 1024Mi.",
    "Attribute.semVerValue": "A semantic version, which is compared as a string.",
    "Device.name": "Name of the device, which identifies it for its driver.",
    "Device.attributes": "Attributes for constraints. They override the pool's attributes of the same name.",
    "Device.requests": "Amounts of the pool's resources that an allocation of the device uses.",
    "Device.resources": "Resources of the device, which claims can share like a node's resources.",
    "DeviceAllocation.devicePoolName": _POOL_NAME,
    "DeviceAllocation.deviceName": _DEVICE_NAME,
    "DeviceAllocation.adminAccess": "Whether the access is administrative and uses none of the device's resources.",
    "DeviceAllocation.allocations": _ALLOCATIONS,
    "DeviceClaimDetail.deviceType": "A type of device, such as sriov-nic. Any class of this type is considered.",
    "DeviceClaimDetail.deviceClass": "Name of the class of the devices.",
    "DeviceClaimDetail.constraints": f"{_CONSTRAINTS} It must be true, and so must the class's.",
    "DeviceClaimDetail.requests": (
        "The minimum of each resource, for all devices together. Every driver supports `count` (default 1), the number"
        " of devices; the driver defines the other resources."
    ),
    "DeviceClaimDetail.limits": "The maximum of each resource, for all devices together; `count` is their number.",
    "DeviceClaimDetail.matchAttributes": f"{_MATCH}, such as the model.",
    "DeviceClaimDetail.configs": "Configuration objects of the vendor, attached to the allocation.",
    "DeviceClaimInstance.oneOf": "Alternatives, the preferred one first. No other field can be set with it.",
    "DeviceClaimSpec.matchAttributes": f"{_MATCH}, in all claims of the list, such as the NUMA node.",
    "DeviceClaimSpec.claims": "Requests that must all be satisfied, each by itself or by one of its alternatives.",
    "DeviceClaimStatus.classConfigs": "The classes' configuration objects, as they were at the allocation.",
    "DeviceClaimStatus.claimConfigs": "The claim's configuration objects, as they were at the allocation.",
    "DeviceClaimStatus.allocations": "The devices that satisfy the claim. The scheduler owns this field.",
    "DeviceClaimStatus.deviceStatuses": "Statuses of the devices. Each driver owns the entries of its devices.",
    "DeviceClaimStatus.podNames": "The pods that use the claim.",
    "DeviceClassConfigReference.apiVersion": "API version of the configuration object.",
    "DeviceClassConfigReference.kind": "Kind of the configuration object.",
    "DeviceClassConfigReference.namespace": "Namespace of the configuration object, which can be any.",
    "DeviceClassConfigReference.name": "Name of the configuration object.",
    "DeviceClassSpec.driver": "The driver of the class; only its devices are considered.",
    "DeviceClassSpec.deviceType": "Vendor-independent type of the devices. Claims can name it instead of the class.",
    "DeviceClassSpec.constraints": f"{_CONSTRAINTS} It must be true, and so must the claim's.",
    "DeviceClassSpec.adminAccess": (
        "Whether claims of the class have administrative access, for monitoring, also to devices that are in use."
        " Restrict the use of such a class with a quota."
    ),
    "DeviceClassSpec.configs": "Configuration objects of the vendor, attached to the allocation.",
    "DeviceConfigReference.apiVersion": "API version of the configuration object.",
    "DeviceConfigReference.kind": "Kind of the configuration object.",
    "DeviceConfigReference.name": "Name of the configuration object, in the claim's namespace.",
    "DeviceDriver.deviceTypes": "The device types of the driver.",
    "DeviceIP.ip": "The address.",
    "DevicePoolSpec.nodeName": "The node that has the devices; empty for those attached to the network.",
    "DevicePoolSpec.driver": "The driver that published the pool.",
    "DevicePoolSpec.attributes": "Attributes that all devices of the pool have.",
    "DevicePoolSpec.resources": "Resources that the devices share, as the partitions of one device do.",
    "DevicePoolSpec.devices": "The devices.",
    "DevicePoolStatus.availableDevices": "Number of free devices, which the scheduler does not use.",
    "DeviceStatus.devicePoolName": f"{_POOL_NAME} Its driver owns this entry.",
    "DeviceStatus.deviceName": _DEVICE_NAME,
    "DeviceStatus.conditions": "The latest observations of the device's state.",
    "DeviceStatus.deviceIP": "The device's address, if it has one.",
    "DeviceStatus.deviceIPs": "All of the device's addresses; the first one is deviceIP.",
    "DeviceStatus.deviceInfo": "Information about the device, in the driver's own format.",
    "DeviceStatus.allocations": _ALLOCATIONS,
    "ResourceAllocation.name": "Name of the resource.",
    "ResourceAllocation.allocation": "The allocated amount.",
    "ResourceCapacity.name": "Name of the resource.",
    "ResourceCapacity.capacity": "The total amount.",
    "ResourceCapacity.blockSize": "Allocations are multiples of this amount (default 1), such as 4Ki of memory.",
}


def description(struct: str, field: str) -> str:
    """Return the meaning of a field of a struct; empty for the fields that all API objects have."""
    if struct == "DeviceClaimInstance" and field != "oneOf":
        struct = "DeviceClaimDetail"  # its fields are inline
    return _FIELDS.get(f"{struct}.{field}", "")
