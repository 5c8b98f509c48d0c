"""Which names are extended resources. Source: device manager specification, section 2.6."""

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_MAX_NAME = 63
_MAX_DOMAIN = 253
_QUOTA_PREFIX = "requests."


def is_extended_resource_name(name: str) -> bool:
    """Tell whether `name` can be a device plugin's resource. Quota must be able to count `requests.<name>`, too."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    domain, _, rest = f"{_QUOTA_PREFIX}{name}".partition("/")
    return (
        len(rest) <= _MAX_NAME
        and _NAME.fullmatch(rest) is not None
        and len(domain) <= _MAX_DOMAIN
        and _DOMAIN.fullmatch(domain) is not None
    )
