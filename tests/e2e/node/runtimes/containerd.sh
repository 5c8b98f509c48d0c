# containerd 2: sourced by up.sh. CRI=containerd
CTRD=$BIN
cri_config() {
  cat > "$RUN/conf/containerd.toml" <<K
version = 3
root = "$RUN/ctrd/root"
state = "$NSRUN/ctrd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs","io.containerd.snapshotter.v1.zfs","io.containerd.snapshotter.v1.devmapper","io.containerd.snapshotter.v1.blockfile","io.containerd.snapshotter.v1.erofs","io.containerd.internal.v1.tracing","io.containerd.nri.v1.nri"]
[grpc]
  address = "$NSRUN/containerd.sock"
[ttrpc]
  address = "$NSRUN/containerd.sock.ttrpc"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/realnode/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  disable_apparmor = true
  restrict_oom_score_adj = true   # a root without CAP_SYS_RESOURCE cannot lower oom_score_adj
  enable_selinux = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  use_internal_loopback = true
  bin_dirs = ["$ROOT/cni"]
  conf_dir = "$RUN/conf/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "$OCI"
  SystemdCgroup = false
K
}
cri_start() { daemon containerd env PATH="$CTRD:/usr/sbin:/usr/bin:/sbin:/bin" "$CTRD/containerd" --config "$RUN/conf/containerd.toml"; }
cri_import() { # file
  waitfor 20 containerd nsenter -t "$(alive holder)" -m -- "$BIN/ctr" -a $CRI_SOCKET -n k8s.io images import --local "$1"
}
