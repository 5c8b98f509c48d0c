"""A claim's device configuration, and drivers' metadata files beside the containers."""

from dra_plugin.preparing import device_config, metadata
from dra_plugin.preparing.device_config import InvalidConfig
from dra_plugin.preparing.metadata import MetadataError

CONFIGS = (
    b'{"apiVersion":"nodeplug.dev/v1","kind":"DeviceConfig","env":{"MODEL":"{model}","A":"b {{"},'
    b'"access":{"uid":1000,"mode":"0660"}}',
    b'{"apiVersion":"nodeplug.dev/v1","kind":"DeviceConfig","sharing":{"maximum":2},"mounts":'
    b'[{"hostPath":"/opt/a","containerPath":"/a","readOnly":true}]}',
    b'{"apiVersion":"nodeplug.dev/v1","kind":"DeviceConfig","interface":{"name":"net1","mtu":1500,'
    b'"addresses":["192.0.2.1/24"],"mac":"02:00:00:00:00:01"}}',
)
STREAMS = (
    b'{"apiVersion":"metadata.resource.k8s.io/v1beta1","kind":"DeviceMetadata","metadata":{"name":"c","namespace":"d",'
    b'"uid":"u"},"requests":[{"name":"r","devices":[{"driver":"nodeplug.dev","pool":"n","name":"gpu-0","attributes":'
    b'{"a":{"string":"x"},"b":{"int":1},"c":{"bool":true},"d":{"version":"1.2.3"}}}]}]}\n',
    b'{"apiVersion":"metadata.resource.k8s.io/v9","kind":"DeviceMetadata"}\n'
    b'{"apiVersion":"metadata.resource.k8s.io/v1alpha1","kind":"DeviceMetadata","podClaimName":"c","requests":[]}\n',
)


def config(data: bytes) -> str:
    """A DeviceConfig of a class or of a claim: accepted, or findings of one line each."""
    outcome, messages = "refused", ""
    for from_class in (True, False):
        try:
            device_config.read(data, from_class=from_class, allowed_mounts=("/opt",))
            outcome = "of a class" if from_class else "of a claim"
        except InvalidConfig as error:
            messages += str(error)
    assert messages.isprintable()
    return outcome


def stream(data: bytes) -> str:
    """The metadata of a request: read, or refused with a reason."""
    try:
        metadata.read_stream(data.decode(errors="replace"))
    except MetadataError:
        return "refused"
    return "read"
