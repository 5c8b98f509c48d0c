# CRI-O: sourced by up.sh. CRI=crio; $CRIO is the folder of crio and pinns, which are not available as Go modules: build
# them from a checkout of CRI-O. Needs conmon and skopeo (Debian).
CRIO=${CRIO:-$STATE/crio}
cri_config() {
  echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$RUN/conf/policy.json"
  cat > "$RUN/conf/crio.conf" <<K
[crio]
root = "$RUN/crio/root"
runroot = "$NSRUN/crio"
storage_driver = "overlay"
log_dir = "/var/log/crio/pods"
version_file = "$NSRUN/crio.version"
version_file_persist = "$RUN/crio/version"
clean_shutdown_file = "$RUN/crio/clean.shutdown"
[crio.api]
listen = "$CRI_SOCKET"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "$CRIO/pinns"
namespaces_dir = "$NSRUN/ns"
container_exits_dir = "$NSRUN/exits"
container_attach_socket_dir = "$NSRUN/attach"
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
apparmor_profile = "unconfined"
# containerd's defaults: tests create device nodes to check which ones a container can open
default_capabilities = ["CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"]
default_runtime = "oci"
[crio.runtime.runtimes.oci]
runtime_path = "$OCI"
runtime_root = "$NSRUN/oci"
monitor_path = "/usr/bin/conmon"
[crio.image]
signature_policy = "$RUN/conf/policy.json"
pause_image = "localhost/realnode/pause:1"
pause_command = ""
[crio.network]
network_dir = "$RUN/conf/cni"
plugin_dirs = ["$ROOT/cni"]
K
}
cri_start() { daemon crio env PATH="$BIN:/usr/sbin:/usr/bin:/sbin:/bin" "$CRIO/crio" --config "$RUN/conf/crio.conf" --config-dir ""; }
cri_import() { # file; its name is in the archive
  local name
  name=$(tar -xOf "$1" index.json | python3 -c 'import json,sys; print(json.load(sys.stdin)["manifests"][0]["annotations"]["io.containerd.image.name"])')
  nsenter -t "$(alive holder)" -m -- skopeo --policy "$RUN/conf/policy.json" copy -q "oci-archive:$1" \
    "containers-storage:[overlay@$RUN/crio/root+$NSRUN/crio]$name"
}
