"""The daemon's own settings, as `settings` in the configuration file has them (schema.py)."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from grpcunix import Transport

_Path: TypeAlias = Annotated[str, Meta(pattern="^/")]


class Settings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The daemon's own settings."""

    kubelet_root: Annotated[
        _Path,
        Meta(
            description="The kubelet's root directory. Its sockets are in `device-plugins`, `plugins_registry` and "
            "`pod-resources` below it."
        ),
    ] = "/var/lib/kubelet"
    state_directory: Annotated[_Path, Meta(description="Where the daemon stores leases. It must survive a reboot.")] = (
        "/var/lib/nodeplug"
    )
    cdi_directory: Annotated[
        _Path, Meta(description="Where the daemon writes CDI specs for the container runtime.")
    ] = "/var/run/cdi"
    allowed_mounts: Annotated[
        tuple[_Path, ...],
        Meta(description="The host folders and files that resources may mount, with everything below them."),
    ] = ()
    device_info_directory: Annotated[
        _Path,
        Meta(description="Where Multus reads device-info files, for resources with `compat: sriov`."),
    ] = "/var/run/k8s.cni.cncf.io/devinfo/dp"
    driver_root: Annotated[
        _Path,
        Meta(
            description="The folder that contains the libraries and tools of drivers, for `userspace`: the root of a "
            "driver container, `/run/nvidia/driver`, or the path where the host's root is mounted."
        ),
    ] = "/"
    driver_root_on_host: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="The path of `driverRoot` on the host, if the daemon's pod mounts it elsewhere: `/` for the "
            "host's root at `/host`. Empty: the same path.",
        ),
    ] = ""
    nvml: Annotated[
        bool,
        Meta(
            description="Ask NVIDIA's management library for memory, MIG profiles and health of its GPUs, see "
            "[the page](nvidia-gpus.md#health-memory-and-profiles-from-nvml)."
        ),
    ] = False
    devlink: Annotated[
        bool,
        Meta(
            description="Ask the drivers of Intel's network cards which DDP package they run, see "
            "[above](#ddp-packages-of-network-cards)."
        ),
    ] = False
    ignored_xids: Annotated[
        tuple[int, ...],
        Meta(description="XIDs (errors of NVIDIA's driver) that do not make a GPU unhealthy, for `nvml`."),
    ] = (13, 31, 43, 45, 68, 109)
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The lowest level of messages that are logged.")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"], Meta(description="`auto` is text on a terminal, JSON elsewhere.")
    ] = "auto"
    rescan_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=86400,
            description="How often the daemon scans all devices. Between scans, events report changes at once.",
        ),
    ] = 60
    health_directory: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="A folder in which your own probes mark devices as unhealthy, see "
            "[above](#health-from-your-own-probes). Empty: none.",
        ),
    ] = ""
    health_seconds: Annotated[int, Meta(ge=1, le=3600, description="How often the daemon samples health.")] = 5
    lock_wait_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=3600,
            description="How long a starting daemon waits until another one releases the state directory (an update).",
        ),
    ] = 10
    register_through_plugin_watcher: Annotated[
        bool, Meta(description="Register through `plugins_registry` instead of at kubelet.sock.")
    ] = False
    transport: Annotated[
        Transport,
        Meta(
            description="The gRPC transport to the kubelet: nodeplug's own, or the package grpcio, which takes 15 MiB"
            " more memory."
        ),
    ] = "builtin"
    metrics_address: Annotated[
        str,
        Meta(
            pattern=r"^(.*:[0-9]{1,5})?$",
            description="`HOST:PORT` at which the daemon serves metrics and probes, e.g. `127.0.0.1:9400`. Empty: the"
            " environment's `NODEPLUG_METRICS_ADDRESS`; without it, nowhere.",
        ),
    ] = ""
    features_directory: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="Where node-feature-discovery reads features from other programs, usually "
            "`/etc/kubernetes/node-feature-discovery/features.d`: the daemon labels the node with its "
            "devices. Empty: no labels.",
        ),
    ] = ""
    tracing: Annotated[
        bool,
        Meta(
            description="Send traces of calls, registrations, reloads and new devices to an OpenTelemetry collector, "
            "which the environment defines (`OTEL_EXPORTER_OTLP_ENDPOINT` and others). Needs the extra "
            "`nodeplug[tracing]`, which the image and the Debian package contain, and 11 MiB of memory."
        ),
    ] = False
    status_page: Annotated[
        Literal["none", "local", "all"],
        Meta(
            description="Who can see the status page at `/` of `metricsAddress`: nobody, clients on the node itself "
            "(for a pod: through `kubectl port-forward`), or every client that can connect. The page "
            "contains names of pods and has no password. `nodeplug ui` shows it without this setting."
        ),
    ] = "none"
    status_socket: Annotated[
        str,
        Meta(
            pattern="^(/.{0,100})?$",
            description="A socket that serves the same as `metricsAddress`, for a probe that must reach this instance"
            " (`python3 -m nodeplug.probe`). Empty: none.",
        ),
    ] = ""
    driver_name: Annotated[
        str,
        Meta(
            description="The name of the DRA driver, in slices and claims, and the vendor of its CDI devices: a DNS "
            "subdomain of at most 63 characters that begins with a letter."
        ),
    ] = "nodeplug.dev"
    node_name: Annotated[
        str,
        Meta(
            description="The node's name in Kubernetes. Empty: the environment's `NODE_NAME`; without it, the host "
            "name."
        ),
    ] = ""
    oci_runtime: Annotated[
        str,
        Meta(
            pattern="^(/.*|unchecked)?$",
            description="The path of runc or crun, which the daemon asks whether it can move interfaces "
            "(`dra.interface`). Empty: the usual paths; every runtime that exists there must be able to. "
            "`unchecked`: do not ask, because you know that it can.",
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="The kubeconfig for the API server, for DRA. Empty: the pod's ServiceAccount.",
        ),
    ] = ""
    cluster_events: Annotated[
        bool,
        Meta(
            description="Write Kubernetes Events: on the pod and the node when a pod's device is unplugged or becomes"
            " unhealthy, and on the node when a request or the configuration is refused."
        ),
    ] = False
