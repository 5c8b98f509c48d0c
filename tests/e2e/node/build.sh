#!/usr/bin/env bash
# Builds every program of the real node from Go modules and two small container images from Debian's
# busybox-static, into $REALNODE_HOME (default ~/.cache/realnode).  Idempotent: what is there is skipped.
#   ./build.sh            build what is missing (about 10 minutes on two cores, 1.3 GiB of modules)
#   K8S=1.37 ./build.sh   another Kubernetes beside it (1.34, 1.35, 1.37), in ~/.cache/realnode-1.37; etcd, containerd and runc are shared
#   NICE=0 ./build.sh     without nice
# Needs: Go >= 1.26, Debian with apt (gcc, libseccomp-dev, busybox-static), python3.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export PATH=$PATH:/usr/local/go/bin
export GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -trimpath"
mkdir -p "$BIN" "$IMAGES_DIR"
NI="nice -n 10"; [ "${NICE:-1}" = 0 ] && NI=
[ -d "$ROOT/modules/kubernetes-$K8S" ] || { echo "K8S=$K8S: there are $(cd "$ROOT/modules" && echo kubernetes-*)"; exit 1; }
K8S_VERSION=$(awk '/^require k8s.io\/kubernetes/ {print $3}' "$ROOT/modules/kubernetes-$K8S/go.mod")

# --- Debian packages -----------------------------------------------------
need=()
[ -f /usr/include/seccomp.h ] || need+=(libseccomp-dev pkg-config)
[ -x /bin/busybox ] || [ -x /usr/bin/busybox ] || need+=(busybox-static)
if [ ${#need[@]} -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}"
fi

# --- Go programs ---------------------------------------------------------
# gobuild <folder of modules/> <out name> <package> <ldflags>
gobuild() {
  local dir=$1 out=$2 pkg=$3 ld=$4
  [ -x "$BIN/$out" ] && { echo "have  $out"; return; }
  local t0=$SECONDS
  ( cd "$ROOT/modules/$dir" && $NI go build -ldflags "-s -w $ld" -o "$BIN/$out.tmp" "$pkg" )
  mv "$BIN/$out.tmp" "$BIN/$out"
  echo "built $out in $((SECONDS-t0)) s ($(du -h "$BIN/$out" | cut -f1))"
}
CB=k8s.io/component-base/version
KLD="-X $CB.gitVersion=$K8S_VERSION -X $CB.gitMajor=1 -X $CB.gitMinor=${K8S#1.} -X $CB.gitTreeState=clean -X $CB.gitCommit=0000000000000000000000000000000000000000"
gobuild kubernetes-$K8S kubelet                 k8s.io/kubernetes/cmd/kubelet                 "$KLD"
gobuild kubernetes-$K8S kube-apiserver          k8s.io/kubernetes/cmd/kube-apiserver          "$KLD"
gobuild kubernetes-$K8S kube-scheduler          k8s.io/kubernetes/cmd/kube-scheduler          "$KLD"
gobuild kubernetes-$K8S kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager "$KLD"
gobuild kubernetes-$K8S kubectl                 k8s.io/kubernetes/cmd/kubectl                 "$KLD"
# programs that do not depend on Kubernetes are shared with the default node, if it is built
DEFAULT=$HOME/.cache/realnode/bin
[ "$BIN" -ef "$DEFAULT" ] || for n in etcd containerd containerd-shim-runc-v2 ctr runc helm host-device; do
  if [ -x "$DEFAULT/$n" ] && [ ! -e "$BIN/$n" ]; then ln "$DEFAULT/$n" "$BIN/$n"; fi
done
gobuild helm helm                     helm.sh/helm/v4/cmd/helm                      ""
gobuild etcd etcd                   go.etcd.io/etcd/server/v3                     ""
CLD="-X github.com/containerd/containerd/v2/version.Version=v2.2.9"
gobuild containerd containerd              github.com/containerd/containerd/v2/cmd/containerd              "$CLD"
gobuild containerd containerd-shim-runc-v2 github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 "$CLD"
gobuild containerd ctr                     github.com/containerd/containerd/v2/cmd/ctr                     "$CLD"

if [ "${CRI:-}" = containerd-1.7 ]; then
  mkdir -p "$BIN/containerd-1.7"
  for n in containerd containerd-shim-runc-v2; do
    gobuild containerd-1.7 containerd-1.7/$n github.com/containerd/containerd/cmd/$n "-X github.com/containerd/containerd/version.Version=v1.7.35"
  done
fi

gobuild cni host-device            github.com/containernetworking/plugins/plugins/main/host-device     ""

CGO_ENABLED=1 GOFLAGS="$GOFLAGS -tags=seccomp" gobuild runc runc github.com/opencontainers/runc "-X main.version=1.5.2"

# --- images (OCI tars; imported by up.sh) ---
OCI=$ROOT/../../../deploy/image/oci.py
BB=/bin/busybox; [ -x $BB ] || BB=/usr/bin/busybox
[ -s "$IMAGES_DIR/busybox.tar" ] || python3 "$OCI" "$IMAGES_DIR/busybox.tar" localhost/realnode/busybox:1 --program $BB --applets --command /bin/sh
[ -s "$IMAGES_DIR/pause.tar" ] || python3 "$OCI" "$IMAGES_DIR/pause.tar" localhost/realnode/pause:1 --program $BB --entrypoint /bin/busybox,sleep,1000000
echo "build.sh: done in $SECONDS s"
