"""The host: readable devices, resources without a device, and the event sources of the kernel."""

import errno
from collections.abc import Iterator

from inotify_simple import INotify

from hostdevices import Host, HostDevicesError, scan
from hostdevices.pod_cgroups import shows_processes
from hostdevices.readers import READERS, paths_reader
from nodeplug.config import Config
from nodeplug.doctor.finding import Finding
from resources.assignment import assign
from resources.emptiness import empty_reason

_SUBJECT = "host"
_SHOWN = 3


def examine(host: Host, config: Config | None) -> Iterator[Finding]:
    """Check the devices of `host`, and which of them the configuration offers."""
    try:
        inventory = scan(host, (*READERS, paths_reader(config.path_globs if config else ())))
    except HostDevicesError as error:
        yield Finding("wrong", _SUBJECT, str(error))
        return
    yield Finding("ok", _SUBJECT, f"devices that can be read: {len(inventory.devices)}")
    for problem in inventory.problems[:_SHOWN]:
        yield Finding("note", _SUBJECT, f"{problem.where}: {problem.reason}", "nodeplug discover shows all of these")
    unknown = [x.id for x in inventory.devices.values() if x.attributes.get("uplinkUnknown")]
    if unknown:
        says = f"it is not known which of these cards is the node's uplink: {', '.join(unknown[:_SHOWN])}"
        yield Finding(
            "note", _SUBJECT, says, "they are offered only with `dangerous: true`; in a cluster, set hostNetwork"
        )
    if config is not None:
        assignment = assign(inventory, config.resources)
        for resource in (x for x in config.resources if not assignment.devices[x.name]):
            says = f"{resource.name}: {empty_reason(resource, inventory, assignment)}"
            yield Finding("note", _SUBJECT, says, f"nodeplug check {config.source} shows the reason for each device")
        yield from _bound(host, config)
    if host.exists("/sys/fs/cgroup") and not shows_processes(host):
        says = (
            "cgroups have version 1 without the controller for pids, and do not show processes: if a pod is deleted by"
            " force, or if the kubelet loses its kubelet_internal_checkpoint, another pod can get the device of a pod"
            " that still runs"
        )
        do = "use version 2; until then delete no pod by force, and drain the node before you remove that file"
        yield Finding("note", _SUBJECT, says, do)
    yield from _watching(host)


def _bound(host: Host, config: Config) -> Iterator[Finding]:
    """Check the requirements of resources whose devices get another driver."""
    for resource in config.resources:
        if resource.dra.bind is None:
            continue
        from dra_plugin.preparing.binding_plan import host_problem

        words = f"{resource.name}: claims have its devices with the driver {resource.dra.bind.driver}"
        why = host_problem(host, resource.dra.bind)
        if not why and not host.list("/sys/kernel/iommu_groups"):
            why = "there is no IOMMU group; switch the IOMMU on in the firmware and on the kernel's command line"
        lacks, _, do = why.partition("; ")
        if lacks:
            yield Finding("wrong", _SUBJECT, f"{words}, and are refused: {lacks}", do)
        else:
            yield Finding("ok", _SUBJECT, f"{words}, which the kernel has")


def _watching(host: Host) -> Iterator[Finding]:
    try:
        INotify().close()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        do = "raise fs.inotify.max_user_instances; until then nodeplug checks folders every 5 s"
        yield Finding("note", _SUBJECT, "the kernel has no inotify instance left", do)
    if host.is_live() and not host.exists("/run/udev/control"):
        yield Finding(
            "note",
            _SUBJECT,
            "no udevd runs here",
            "the kernel's own events are enough, but there are no links like those in /dev/serial/by-id",
        )
