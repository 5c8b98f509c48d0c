"""CEL values in the form of the recorded answers: JSON of cel.expr.Value, or Go's text for other types."""

import base64
import math
from typing import Any

from resourceapi.cel.library.times import format_duration, format_timestamp
from resourceapi.cel.values import Duration, Optional, Timestamp, TypeValue, Uint, display, is_map, items_of

_PREFIX = "type.googleapis.com/google.protobuf."


class NotAValueError(Exception):
    """cel.expr.Value cannot represent the value."""


def as_value(value: Any) -> dict[str, Any]:
    """The JSON form; raises NotAValueError."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, Uint):
        return {"uint64Value": str(int(value))}
    if isinstance(value, int):
        return {"int64Value": str(value)}
    if isinstance(value, float):
        return {"doubleValue": _double(value)}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if value is None:
        return {"nullValue": None}
    if isinstance(value, list):
        return {"listValue": {"values": [as_value(each) for each in value]} if value else {}}
    if is_map(value):
        entries = [{"key": as_value(key), "value": as_value(each)} for key, each in items_of(value)]
        return {"mapValue": {"entries": entries} if entries else {}}
    if isinstance(value, TypeValue):
        return {"typeValue": value.name}
    if isinstance(value, Optional) and value.present:
        return {"objectValue": _any(value.value)}
    if isinstance(value, Duration | Timestamp):
        return {"objectValue": _any(value)}
    raise NotAValueError


def as_text(value: Any) -> str:
    """Go's printed form of a value whose type cel.expr.Value does not support."""
    if isinstance(value, Optional):
        return as_text(value.value) if value.present else "<nil>"
    if isinstance(value, list):
        return f"[{' '.join(_element(each) for each in value)}]"
    if is_map(value):
        entries = sorted((_element(key), _element(each)) for key, each in items_of(value))
        return f"map[{' '.join(f'{key}:{each}' for key, each in entries)}]"
    return display(value)


def _element(value: Any) -> str:
    if isinstance(value, Optional):
        return f"optional({as_text(value.value)})" if value.present else "optional.none()"
    return as_text(value)


def _double(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _any(value: Any) -> dict[str, Any]:
    if isinstance(value, Optional) and value.present:
        return _any(value.value)
    if isinstance(value, Duration):
        return {"@type": f"{_PREFIX}Duration", "value": _proto_duration(value)}
    if isinstance(value, Timestamp):
        return {"@type": f"{_PREFIX}Timestamp", "value": _proto_timestamp(value)}
    if value is None:
        return {"@type": f"{_PREFIX}Value", "value": None}
    if isinstance(value, float):
        return {"@type": f"{_PREFIX}DoubleValue", "value": _double(value)}
    for kind, name in ((bool, "BoolValue"), (Uint, "UInt64Value"), (int, "Int64Value")):
        if isinstance(value, kind):
            return {"@type": _PREFIX + name, "value": str(int(value)) if name.endswith("64Value") else value}
    if isinstance(value, str):
        return {"@type": f"{_PREFIX}StringValue", "value": value}
    if isinstance(value, bytes):
        return {"@type": f"{_PREFIX}BytesValue", "value": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return {"@type": f"{_PREFIX}ListValue", "value": _json(value)}
    if is_map(value) and all(isinstance(key, str) for key in value):
        return {"@type": f"{_PREFIX}Struct", "value": _json(value)}
    raise NotAValueError


def _json(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotAValueError  # in Go's Struct and ListValue; a double outside of them has a text
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**53 else str(int(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_json(each) for each in value]
    if is_map(value):
        return {str(key): _json(each) for key, each in items_of(value)}
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    raise NotAValueError


def _proto_duration(value: Duration) -> str:
    sign = "-" if value.nanos < 0 else ""
    seconds, nanos = divmod(abs(value.nanos), 10**9)
    return f"{sign}{seconds}{_proto_fraction(nanos)}s"


def _proto_timestamp(value: Timestamp) -> str:
    whole = format_timestamp(Timestamp(value.nanos - value.nanos % 10**9))
    return f"{whole[:-1]}{_proto_fraction(value.nanos % 10**9)}Z"


def _proto_fraction(nanos: int) -> str:
    if nanos == 0:
        return ""
    digits = f"{nanos:09d}"
    for length in (3, 6):
        if digits[length:].strip("0") == "":
            return f".{digits[:length]}"
    return f".{digits}"
