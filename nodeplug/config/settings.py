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
    state_directory: Annotated[_Path, Meta(description="Where leases are kept. It must survive a reboot.")] = (
        "/var/lib/nodeplug"
    )
    cdi_directory: Annotated[_Path, Meta(description="Where CDI specs are written for the container runtime.")] = (
        "/var/run/cdi"
    )
    allowed_mounts: Annotated[
        tuple[_Path, ...],
        Meta(description="What resources may mount: these host folders and files, and what is below them."),
    ] = ()
    device_info_directory: Annotated[
        _Path,
        Meta(description="Where Multus looks for what is known of a device, of resources with `compat: sriov`."),
    ] = "/var/run/k8s.cni.cncf.io/devinfo/dp"
    driver_root: Annotated[
        _Path,
        Meta(
            description="Below which folder the libraries and tools of drivers are, for `userspace`: that of a driver "
            "in a container, `/run/nvidia/driver`, or where the host's root is mounted."
        ),
    ] = "/"
    driver_root_on_host: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="Which folder of the host `driverRoot` is, where the daemon's pod has it elsewhere: `/` for "
            "the host's root at `/host`. Empty: the same.",
        ),
    ] = ""
    nvml: Annotated[
        bool,
        Meta(
            description="Ask NVIDIA's management library for memory, MIG profiles and health of its GPUs, see "
            "[above](#what-nvidias-library-says)."
        ),
    ] = False
    devlink: Annotated[
        bool,
        Meta(
            description="Ask the drivers of Intel's network cards which DDP package they run, see "
            "[above](#what-network-cards-run)."
        ),
    ] = False
    ignored_xids: Annotated[
        tuple[int, ...], Meta(description="Errors of NVIDIA's driver that say nothing of the GPU, for `nvml`.")
    ] = (13, 31, 43, 45, 68, 109)
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least important messages that are logged.")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"], Meta(description="`auto` is text on a terminal, JSON elsewhere.")
    ] = "auto"
    rescan_seconds: Annotated[
        int,
        Meta(ge=1, le=86400, description="How often everything is read again. Events make changes known at once."),
    ] = 60
    health_directory: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="A folder in which probes of yours say that a device is unhealthy, see "
            "[above](#health-that-your-own-probes-know). Empty: none.",
        ),
    ] = ""
    health_seconds: Annotated[int, Meta(ge=1, le=3600, description="How often health is sampled.")] = 5
    lock_wait_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=3600,
            description="How long a starting daemon waits for another one to give up the state directory (an upgrade).",
        ),
    ] = 10
    register_through_plugin_watcher: Annotated[
        bool, Meta(description="Register through `plugins_registry` instead of at kubelet.sock.")
    ] = False
    transport: Annotated[
        Transport,
        Meta(
            description="What speaks gRPC with the kubelet: nodeplug's own transport, or the package grpcio, which "
            "takes 15 MiB more."
        ),
    ] = "builtin"
    metrics_address: Annotated[
        str,
        Meta(
            pattern=r"^(.*:[0-9]{1,5})?$",
            description="`HOST:PORT` where metrics are served, and probes are answered, e.g. `127.0.0.1:9400`. Empty: "
            "the environment's `NODEPLUG_METRICS_ADDRESS`, else nowhere.",
        ),
    ] = ""
    features_directory: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="Where node-feature-discovery reads features that others know, usually "
            "`/etc/kubernetes/node-feature-discovery/features.d`: what is offered here becomes labels of the node. "
            "Empty: it does not.",
        ),
    ] = ""
    tracing: Annotated[
        bool,
        Meta(
            description="Make traces of calls, registrations, reloads and devices that come, for an OpenTelemetry "
            "collector; where it is, the environment says (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like). It needs the "
            "extra `nodeplug[tracing]`, which the image and the Debian package have, and 11 MiB."
        ),
    ] = False
    status_page: Annotated[
        Literal["none", "local", "all"],
        Meta(
            description="Who may look at the page that is served at `/` of `metricsAddress`: nobody, whoever asks from "
            "the node itself (in a pod: through `kubectl port-forward`), or whoever can connect. It has the names of "
            "pods, and no password. `nodeplug ui` shows it without this."
        ),
    ] = "none"
    status_socket: Annotated[
        str,
        Meta(
            pattern="^(/.{0,100})?$",
            description="A socket at which the same is served, for a probe that asks this very instance "
            "(`python3 -m nodeplug.probe`). Empty: none.",
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
        Meta(description="The node's name in Kubernetes. Empty: the environment's `NODE_NAME`, else the host name."),
    ] = ""
    oci_runtime: Annotated[
        str,
        Meta(
            pattern="^(/.*|unchecked)?$",
            description="Where runc or crun is, which is asked whether it can move interfaces (`dra.interface`). "
            "Empty: where they usually are; each that is there must be able to. `unchecked`: none is asked, you know "
            "that it can.",
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        Meta(
            pattern="^(/.*)?$",
            description="Where the API server is and who we are to it, for DRA. Empty: as pods are told.",
        ),
    ] = ""
    cluster_events: Annotated[
        bool,
        Meta(
            description="Write Events to the API server: on the pod and the node when a device that a pod has goes or "
            "falls ill, on the node when something is refused, and when the configuration is."
        ),
    ] = False
