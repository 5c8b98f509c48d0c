"""The objects of resource.k8s.io: types, quantities, defaults and conversion between versions.

obj = decode(data, defaults_at=now)                 any served version; the result is v1 (see `v1`)
data = encode(obj, "resource.k8s.io/v1beta1")

Not imported here, because the daemon does not need it: what an API server does with an object before it stores it
(`strategy`, `validate` and the rules below it), and the selectors of list requests (`selectors`).

errors = validate_create(prepare_create(obj), check_selector=check_device_selector)
"""

from resourceapi.objects import core, v1, v1beta1
from resourceapi.objects.claims import (
    ClaimLookupError,
    ClaimName,
    check_made_for,
    claim_name,
    config_for_result,
    is_reserved_for,
    tolerates,
)
from resourceapi.objects.codec import DecodeError, format_time, from_dict, to_dict, without_unknown
from resourceapi.objects.decode import (
    KINDS,
    NAMESPACED,
    Decoded,
    decode,
    decode_with_problems,
    encode,
    parse_json,
    read_as,
    read_object,
    read_objects,
    read_with_problems,
    write_object,
)
from resourceapi.objects.defaults import with_defaults
from resourceapi.objects.errors import ErrorList, ErrorType, FieldError, InOrder, invalid_status, quoted_text
from resourceapi.objects.meta import Condition, KubernetesObject, ObjectMeta, OwnerReference, Record
from resourceapi.objects.quantity import Quantity, QuantityError

__all__ = [
    "KINDS",
    "NAMESPACED",
    "ClaimLookupError",
    "ClaimName",
    "Condition",
    "DecodeError",
    "Decoded",
    "ErrorList",
    "ErrorType",
    "FieldError",
    "InOrder",
    "KubernetesObject",
    "ObjectMeta",
    "OwnerReference",
    "Quantity",
    "QuantityError",
    "Record",
    "check_made_for",
    "claim_name",
    "config_for_result",
    "core",
    "decode",
    "decode_with_problems",
    "encode",
    "format_time",
    "from_dict",
    "invalid_status",
    "is_reserved_for",
    "parse_json",
    "quoted_text",
    "read_as",
    "read_object",
    "read_objects",
    "read_with_problems",
    "to_dict",
    "tolerates",
    "v1",
    "v1beta1",
    "with_defaults",
    "without_unknown",
    "write_object",
]
