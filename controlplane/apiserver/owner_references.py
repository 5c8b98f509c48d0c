"""Owners that are named twice: a server keeps the first and warns.

Source: k8s.io/apiserver pkg/endpoints/handlers/rest.go.
"""

from controlplane.apiserver.kinds import Decoded
from resourceapi.objects.json_value import json_equal

_TOLD = (
    ".metadata.ownerReferences contains duplicate entries{}; API server dedups owner references in 1.20+, and may"
    " reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}"
)


def without_repeated_owners(decoded: Decoded, *, is_patched: bool) -> Decoded:
    """What was decoded with each owner once, and what is told about those that came again."""
    metadata, kept, repeated = decoded.object["metadata"], list[object](), list[str]()
    for each in metadata.get("ownerReferences") or ():
        if any(json_equal(each, other) for other in kept):
            repeated.append(each.get("uid", ""))
        else:
            kept.append(each)
    if not repeated:
        return decoded
    told = _TOLD.format(" after mutating admission happens" if is_patched else "", ", ".join(repeated))
    obj = {**decoded.object, "metadata": {**metadata, "ownerReferences": kept}}
    return decoded._replace(object=obj, problems=(*decoded.problems, told))
