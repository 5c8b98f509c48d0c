# Common to the other scripts.  Sourced; sets ROOT (the scripts), STATE (what they build and write), RUN, BIN and helpers.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
K8S=${K8S:-1.36}                                       # which Kubernetes: a folder of modules/
[ "$K8S" = 1.36 ] && STATE=$HOME/.cache/realnode || STATE=$HOME/.cache/realnode-$K8S
STATE=${REALNODE_HOME:-$STATE}
RUN=${REALNODE_RUN:-$STATE/run}
BIN=$STATE/bin IMAGES_DIR=$STATE/images
PIDS=$RUN/pids LOGS=$RUN/logs
NODE=realnode
CGROUP=${REALNODE_CGROUP:-realnode}                     # cgroup that holds all pods, in every v1 hierarchy
# all on 127.0.0.1
P_API=${P_API:-16443} P_ETCD=${P_ETCD:-12379} P_ETCDPEER=${P_ETCDPEER:-12380}
P_KUBELET=${P_KUBELET:-11250} P_KUBELETHZ=${P_KUBELETHZ:-11248} P_KCM=${P_KCM:-11257} P_SCHED=${P_SCHED:-11259}
export KUBECONFIG=$RUN/conf/admin.kubeconfig
CRI=${CRI:-containerd}                                 # which container runtime: a file of runtimes/
CRI_NAME=${CRI%%-*}                                    # containerd, crio: its program and its socket
OCI=${OCI:-$BIN/runc}                                  # the OCI runtime, for example /usr/bin/crun
# seen only inside the private mount namespace (short: unix socket paths end at 107 bytes)
NSRUN=/run/realnode
CRI_SOCKET=$NSRUN/$CRI_NAME.sock

# start time of a pid in clock ticks: guards a pid file against a re-used pid.  Empty for a zombie
# (a slow pid 1 may reap late).
starttime() {
  local l f; { read -r l < "/proc/$1/stat"; } 2>/dev/null || return 0
  f=(${l##*) }); [ "${f[0]}" = Z ] || echo "${f[19]}"
}
savepid() { echo "$2 $(starttime "$2")" > "$PIDS/$1"; }
# alive NAME -> prints the pid when that very process still runs
alive() {
  local p s; [ -f "$PIDS/$1" ] || return 1
  read -r p s < "$PIDS/$1"
  [ -n "$s" ] && [ "$(starttime "$p")" = "$s" ] && echo "$p"
}
# stopone NAME [seconds]
stopone() {
  local p i n=$(( ${2:-10} * 20 )); p=$(alive "$1") || { rm -f "$PIDS/$1"; return 0; }
  kill -TERM "$p" 2>/dev/null
  for ((i=0; i<n; i++)); do alive "$1" >/dev/null || break; sleep 0.05; done
  alive "$1" >/dev/null && { echo "down: $1 ($p) ignored TERM, KILL"; kill -KILL "$p"; }
  rm -f "$PIDS/$1"
}
# daemon NAME CMD... : in the node's mount namespace, own session, log in $LOGS/NAME.log
daemon() {
  local name=$1 h; shift; h=$(alive holder) || { echo "no holder"; return 1; }
  setsid nsenter -t "$h" -m --wd=/ -- "$@" >>"$LOGS/$name.log" 2>&1 </dev/null &
  savepid "$name" $!
}
# waitfor SECONDS NAME CMD... : poll CMD until it succeeds; fail when daemon NAME dies
waitfor() {
  local t=$1 n=$2 i; shift 2
  for ((i=0; i<t*10; i++)); do
    "$@" >/dev/null 2>&1 && return 0
    [ "$n" = - ] || alive "$n" >/dev/null || { echo "$n died:"; tail -5 "$LOGS/$n.log"; return 1; }
    sleep 0.1
  done
  echo "timeout after $t s: $*"; return 1
}
start_kubelet() {
  daemon kubelet "$BIN/kubelet" --config="$RUN/conf/kubelet.yaml" --kubeconfig="$RUN/conf/kubelet.kubeconfig" \
    --hostname-override=$NODE --cert-dir="$RUN/kubelet-pki" --v="${KUBELET_V:-2}"
}
