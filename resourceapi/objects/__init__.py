"""The objects of resource.k8s.io: types, quantities, defaults, validation and conversion between versions.

obj = decode(data, defaults_at=now)                 any served version; computed with as v1 (see `v1`)
errors = validate_create(prepare_create(obj), check_selector=check_device_selector)
data = encode(obj, "resource.k8s.io/v1beta1")
"""

from resourceapi.objects import core, older, v1
from resourceapi.objects.claims import (
    ClaimLookupError,
    ClaimName,
    check_made_for,
    claim_name,
    config_for_result,
    is_reserved_for,
    tolerates,
)
from resourceapi.objects.class_rules import CheckSelector, SelectorCheck
from resourceapi.objects.codec import DecodeError, format_time, from_dict, to_dict, without_unknown
from resourceapi.objects.decode import (
    KINDS,
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
from resourceapi.objects.selectors import (
    FieldSelector,
    LabelSelector,
    NodeMatcher,
    SelectorError,
    node_matches,
    parse_field_selector,
    parse_label_selector,
)
from resourceapi.objects.strategy import prepare_create, prepare_status_update, prepare_update, warnings
from resourceapi.objects.validate import NAMESPACED, validate_create, validate_status_update, validate_update

__all__ = [
    "KINDS",
    "NAMESPACED",
    "CheckSelector",
    "ClaimLookupError",
    "ClaimName",
    "Condition",
    "DecodeError",
    "Decoded",
    "ErrorList",
    "ErrorType",
    "FieldError",
    "FieldSelector",
    "InOrder",
    "KubernetesObject",
    "LabelSelector",
    "NodeMatcher",
    "ObjectMeta",
    "OwnerReference",
    "Quantity",
    "QuantityError",
    "Record",
    "SelectorCheck",
    "SelectorError",
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
    "node_matches",
    "older",
    "parse_field_selector",
    "parse_json",
    "parse_label_selector",
    "prepare_create",
    "prepare_status_update",
    "prepare_update",
    "quoted_text",
    "read_as",
    "read_object",
    "read_objects",
    "read_with_problems",
    "to_dict",
    "tolerates",
    "v1",
    "validate_create",
    "validate_status_update",
    "validate_update",
    "warnings",
    "with_defaults",
    "without_unknown",
    "write_object",
]
