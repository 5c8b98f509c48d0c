"""Dangerous devices that another plugin offered without a marker: here a resource must set `dangerous: true`.

Whether a device is dangerous is determined on the node that the conversion is for, or by the path if there is no such
device.
"""

from collections.abc import Iterable, Iterator

from msgspec import structs

from hostdevices import Device, Devnode, Host, scan
from hostdevices.globs import is_glob
from hostdevices.readers import READERS, paths_reader
from nodeplug.convert.conversion import LeftOut, Offered
from resources.danger import danger_reason


def with_danger(items: Iterable[Offered | LeftOut], host: Host) -> Iterator[Offered | LeftOut]:
    """Yield the resources; those with dangerous single paths get the key `dangerous` and a remark with the reason."""
    known = list(items)
    wanted = {path for x in known for path in _paths(x)}
    if not wanted:
        yield from known
        return
    reasons: dict[str, str] = {}
    for device in scan(host, (*READERS, paths_reader(sorted(wanted)))).devices.values():
        for node in device.devnodes:
            reasons[node.path] = reasons.get(node.path) or danger_reason(device)
    for path in wanted - reasons.keys():
        reasons[path] = danger_reason(Device("", "path", path, "", devnodes=(Devnode(path, "c", 0, 0),)))
    for item in known:
        found = [reasons[path] for path in _paths(item) if reasons[path]]
        if isinstance(item, Offered) and found:
            remarks = (*item.remarks, *(f"dangerous: {reason}; it was offered before, too." for reason in found))
            item = structs.replace(item, resource={**item.resource, "dangerous": True}, remarks=remarks)
        yield item


def _paths(item: Offered | LeftOut) -> list[str]:
    if isinstance(item, LeftOut):
        return []
    select, group = item.resource.get("select"), item.resource.get("group")
    paths = select.get("path", []) if isinstance(select, dict) else []
    members = [x["path"] for x in group.get("paths", [])] if isinstance(group, dict) else []
    return [path for path in ([paths] if isinstance(paths, str) else paths) + members if not is_glob(path)]
