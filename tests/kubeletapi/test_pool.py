"""The generated messages do not conflict with those that another package has generated from the same API."""

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

from kubeletapi.deviceplugin.v1beta1 import api_pb2 as ours


def test_same_messages_in_default_pool_do_not_conflict() -> None:
    file = FileDescriptorProto()
    ours.DESCRIPTOR.CopyToProto(file)
    file.name = "api.proto"
    theirs: Any = GetMessageClass(Default().AddSerializedFile(file.SerializeToString()).message_types_by_name["Device"])
    device = ours.Device(ID="a", health="Healthy")
    assert theirs.FromString(device.SerializeToString()).ID == "a"
    assert theirs is not type(device)
