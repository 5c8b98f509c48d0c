# containerd 1.7: sourced by up.sh. CRI=containerd-1.7; Kubernetes 1.35 is the last one that works with it.
. "$ROOT/runtimes/containerd.sh"
CTRD=$BIN/containerd-1.7
cri_config() {
  cat > "$RUN/conf/containerd.toml" <<K
version = 2
root = "$RUN/ctrd/root"
state = "$NSRUN/ctrd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs","io.containerd.snapshotter.v1.zfs","io.containerd.snapshotter.v1.devmapper","io.containerd.snapshotter.v1.blockfile","io.containerd.internal.v1.opt","io.containerd.tracing.processor.v1.otlp","io.containerd.internal.v1.tracing","io.containerd.nri.v1.nri"]
[grpc]
  address = "$NSRUN/containerd.sock"
[ttrpc]
  address = "$NSRUN/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/realnode/pause:1"
  enable_cdi = true   # off by default
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  enable_selinux = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "$ROOT/cni"
  conf_dir = "$RUN/conf/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "$OCI"
  SystemdCgroup = false
K
}
