"""The objects of resource.k8s.io: types, quantities, defaults, validation and conversion between versions."""

from resourceapi.objects import core, older, v1
from resourceapi.objects.codec import DecodeError, from_dict, to_dict, without_unknown
from resourceapi.objects.decode import (
    KINDS,
    Decoded,
    decode,
    encode,
    parse_json,
    read_as,
    read_object,
    read_objects,
    read_with_unknown,
    write_object,
)
from resourceapi.objects.defaults import with_defaults
from resourceapi.objects.meta import KubernetesObject, ObjectMeta, Record
from resourceapi.objects.quantity import Quantity, QuantityError

__all__ = [
    "KINDS",
    "DecodeError",
    "Decoded",
    "KubernetesObject",
    "ObjectMeta",
    "Quantity",
    "QuantityError",
    "Record",
    "core",
    "decode",
    "encode",
    "from_dict",
    "older",
    "parse_json",
    "read_as",
    "read_object",
    "read_objects",
    "read_with_unknown",
    "to_dict",
    "v1",
    "with_defaults",
    "without_unknown",
    "write_object",
]
