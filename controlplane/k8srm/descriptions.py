"""The meaning of the fields of the prototype's kinds, for `kubectl explain`. Source: its API documentation."""

_CONSTRAINTS = "A CEL expression over a device's attributes."
_POOL_NAME = "The pool that the device belongs to."
_DEVICE_NAME = "The device's name in its pool."
_ALLOCATIONS = (
    "How much of the device's resources the claim has. It may be a part of what the claim asks for, and more than that"
    " where a device gives whole blocks only."
)
_MATCH = "Names of attributes that must have one value over all chosen devices, whichever it is"

_FIELDS = {
    "Attribute.name": "Name of the attribute. One of the values below is set.",
    "Attribute.stringValue": "The value, a text.",
    "Attribute.intValue": "The value, a number.",
    "Attribute.quantityValue": "The value, a quantity: 1Gi equals 1024Mi.",
    "Attribute.semVerValue": "The value, a semantic version, which is just a text here.",
    "Device.name": "Name of the device, which its driver knows.",
    "Device.attributes": "What constraints know of the device. An attribute of the pool with the same name gives way.",
    "Device.requests": "What is taken of the pool's resources when the device is allocated.",
    "Device.resources": "Resources of the device itself that claims can share, as with those of a node.",
    "DeviceAllocation.devicePoolName": _POOL_NAME,
    "DeviceAllocation.deviceName": _DEVICE_NAME,
    "DeviceAllocation.adminAccess": "Whether the access is administrative: then it holds nothing of the device.",
    "DeviceAllocation.allocations": _ALLOCATIONS,
    "DeviceClaimDetail.deviceType": "A type of device, such as sriov-nic: any class that provides it will do.",
    "DeviceClaimDetail.deviceClass": "Name of the class from which devices are taken.",
    "DeviceClaimDetail.constraints": f"{_CONSTRAINTS} It and that of the class must be true.",
    "DeviceClaimDetail.requests": (
        "The least that all devices together must give. Every driver knows `count`, which is 1 unless said otherwise;"
        " the other resources are the driver's."
    ),
    "DeviceClaimDetail.limits": "The most that is taken in all: `count` is the number of devices.",
    "DeviceClaimDetail.matchAttributes": f"{_MATCH}, such as the model.",
    "DeviceClaimDetail.configs": "Configuration objects of the vendor, attached to the allocation.",
    "DeviceClaimInstance.oneOf": "Alternatives, the best first, of which one must be satisfied; it stands alone.",
    "DeviceClaimSpec.matchAttributes": f"{_MATCH}, across all the claims below, such as the NUMA node.",
    "DeviceClaimSpec.claims": "What must be satisfied: each of them, or one of its alternatives.",
    "DeviceClaimStatus.classConfigs": "The classes' configuration objects, as they were at the allocation.",
    "DeviceClaimStatus.claimConfigs": "The claim's configuration objects, as they were at the allocation.",
    "DeviceClaimStatus.allocations": "The devices that satisfy the claim. The scheduler owns this field.",
    "DeviceClaimStatus.deviceStatuses": "What drivers report of the devices; each owns its own entries.",
    "DeviceClaimStatus.podNames": "The pods that use the claim.",
    "DeviceClassConfigReference.apiVersion": "API version of the configuration object.",
    "DeviceClassConfigReference.kind": "Kind of the configuration object.",
    "DeviceClassConfigReference.namespace": "Namespace of the configuration object: any, since an administrator chose.",
    "DeviceClassConfigReference.name": "Name of the configuration object.",
    "DeviceClassSpec.driver": "The driver that handles the class: only its devices are considered.",
    "DeviceClassSpec.deviceType": "What the devices are, whoever made them. Claims may name it instead of the class.",
    "DeviceClassSpec.constraints": f"{_CONSTRAINTS} It and that of the claim must be true.",
    "DeviceClassSpec.adminAccess": (
        "Whether claims of the class get administrative access, for monitoring: to devices whatever others hold."
        " Who may use such a class has to be controlled by quota."
    ),
    "DeviceClassSpec.configs": "Configuration objects of the vendor, attached to the allocation.",
    "DeviceConfigReference.apiVersion": "API version of the configuration object.",
    "DeviceConfigReference.kind": "Kind of the configuration object.",
    "DeviceConfigReference.name": "Name of the configuration object, in the claim's namespace.",
    "DeviceDriver.deviceTypes": "The types of device that the driver handles.",
    "DeviceIP.ip": "The address.",
    "DevicePoolSpec.nodeName": "The node that has the devices; empty for those attached to the network.",
    "DevicePoolSpec.driver": "The driver that published the pool.",
    "DevicePoolSpec.attributes": "Attributes that all devices of the pool have.",
    "DevicePoolSpec.resources": "Resources that the devices share, as the partitions of one device do.",
    "DevicePoolSpec.devices": "The devices.",
    "DevicePoolStatus.availableDevices": "How many devices the driver sees free: nothing to schedule by.",
    "DeviceStatus.devicePoolName": f"{_POOL_NAME} Its driver owns this entry.",
    "DeviceStatus.deviceName": _DEVICE_NAME,
    "DeviceStatus.conditions": "The latest observations of the device's state.",
    "DeviceStatus.deviceIP": "The device's address, if it has one.",
    "DeviceStatus.deviceIPs": "All of the device's addresses; the first one is deviceIP.",
    "DeviceStatus.deviceInfo": "What the driver tells about the device, in a form of its own.",
    "DeviceStatus.allocations": _ALLOCATIONS,
    "ResourceAllocation.name": "Name of the resource.",
    "ResourceAllocation.allocation": "How much of it the claim has.",
    "ResourceCapacity.name": "Name of the resource.",
    "ResourceCapacity.capacity": "How much there is of it in all.",
    "ResourceCapacity.blockSize": "It is taken in multiples of this, such as 4Ki of memory; 1 unless said otherwise.",
}


def description(struct: str, field: str) -> str:
    """Return the meaning of a field of a struct; empty for the fields that all API objects have."""
    if struct == "DeviceClaimInstance" and field != "oneOf":
        struct = "DeviceClaimDetail"  # its fields are inline
    return _FIELDS.get(f"{struct}.{field}", "")
