"""Duplicate owner references: a server keeps the first and warns.

Source: k8s.io/apiserver pkg/endpoints/handlers/rest.go.
"""

from controlplane.apiserver.kinds import Decoded, Plain

_DUPLICATES = (
    ".metadata.ownerReferences contains duplicate entries{}; API server dedups owner references in 1.20+, and may"
    " reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}"
)


def without_repeated_owners(decoded: Decoded, *, is_patched: bool) -> Decoded:
    """Return the decoded object with each owner once, and with warnings for the duplicates."""
    metadata, repeated = decoded.object["metadata"], list[str]()
    kept: dict[frozenset[tuple[str, object]], Plain] = {}  # by their members, which are strings and booleans
    for each in metadata.get("ownerReferences") or ():
        members = frozenset(each.items())
        if members in kept:
            repeated.append(each.get("uid", ""))
        else:
            kept[members] = each
    if not repeated:
        return decoded
    warning = _DUPLICATES.format(" after mutating admission happens" if is_patched else "", ", ".join(repeated))
    obj = {**decoded.object, "metadata": {**metadata, "ownerReferences": [*kept.values()]}}
    return decoded._replace(object=obj, problems=(*decoded.problems, warning))
