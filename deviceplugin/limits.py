"""How many devices fit in the kubelet's list: its gRPC client accepts 4 MiB, and ends a stream with a larger message.

Sizes are upper bounds of the encoded ListAndWatchResponse (device plugin API, v1beta1), with the longest device ids and
health, so that an accepted list never grows too long later.
"""

from hostdevices.identity import MAX_LENGTH

LIST_LIMIT = 4_194_304
_OFFERED_LIMIT = LIST_LIMIT * 7 // 8  # the rest is for units that are held but gone, which stay listed
_HEALTH_LENGTH = 9  # "Unhealthy"


def list_size(devices: int, shares: int = 1, numa_nodes: int = 1) -> int:
    """Return the maximum size of a resource's list, in bytes; `numa_nodes` is how many each device has."""
    share = 1 + len(str(shares - 1)) if shares > 1 else 0
    topology = _field(_field(1 + 2) * numa_nodes) if numa_nodes else 0
    return devices * shares * _field(_field(MAX_LENGTH + share) + _field(_HEALTH_LENGTH) + topology)


def list_too_long_reason(devices: int, shares: int = 1) -> str:
    """Return why the list of a resource would be refused, with the number that fits; empty if it fits."""
    size = list_size(devices, shares)
    if size <= _OFFERED_LIMIT:
        return ""
    return (
        f"{devices} device(s) with {shares} share(s) make a list of up to {size} bytes; the kubelet takes {LIST_LIMIT}:"
        f" at most {_OFFERED_LIMIT // (list_size(1, shares) // shares)} devices times shares"
    )


def _field(size: int) -> int:
    """Return the size of a field with `size` bytes of content, including tag and length."""
    return 1 + (max(1, size.bit_length()) + 6) // 7 + size
