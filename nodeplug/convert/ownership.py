"""Single ownership: of two resources that select the same path, the second one gets no device here, with a remark.

Other plugins offer a node in every resource that selects it, so that it can be allocated twice. Here the first resource
that selects a device owns it (resources/assignment.py).
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from msgspec import structs

from hostdevices.globs import is_glob
from nodeplug.convert.conversion import LeftOut, Offered, Values


def with_one_owner(items: Iterable[Offered | LeftOut]) -> Iterator[Offered | LeftOut]:
    """Yield the resources; one that can have no device is left out, one that has fewer than before gets a remark."""
    owners: dict[str, str] = {}  # by the globs that resources select
    for item in items:
        if isinstance(item, LeftOut):
            yield item
            continue
        name = item.resource["name"]
        needed, others = _selected_globs(item.resource)
        taken = {glob: owner for glob in (*needed, *others) if (owner := _owner(glob, owners))}
        reasons = ", ".join(
            f"{owner} has {' and '.join(glob for glob in taken if taken[glob] == owner)} already"
            for owner in dict.fromkeys(taken.values())
        )
        if any(glob in taken for glob in needed) or (others and taken.keys() >= set(others)):
            yield LeftOut(name, f"{reasons}, and a device has one owner")
            continue
        for glob in (*needed, *others):
            owners[glob] = name
        yield structs.replace(item, remarks=(*item.remarks, f"{reasons}, and keeps it.")) if taken else item


def _selected_globs(resource: Values) -> tuple[list[str], list[str]]:
    """Return the globs that a resource needs all of, and those of which it needs one."""
    group, select = resource.get("group"), resource.get("select")
    if isinstance(group, dict) and "folder" in group:
        return [f"{group['folder']}/**"], []
    if isinstance(group, dict) and "paths" in group:
        return [x["path"] for x in group["paths"] if not x.get("optional")], []
    paths = select.get("path", []) if isinstance(select, dict) else []
    return [], [paths] if isinstance(paths, str) else list(paths)


def _owner(glob: str, owners: dict[str, str]) -> str:
    """Return the owner of everything that a glob matches; empty if some of it can be free."""
    for earlier, owner in owners.items():
        folder = earlier.removesuffix("**")
        if glob == earlier or (folder != earlier and glob.startswith(folder)):
            return owner
        if not is_glob(glob) and glob.count("/") == earlier.count("/") and fnmatchcase(glob, earlier):
            return owner
    return ""
