#!/bin/sh
# A demo cluster: starts `dray up`, applies examples/cluster, shows what runs where and why one pod waits.
# The cluster stays until `make demo.stop` (or `sh examples/demo.sh stop`). `make demo` runs this; so does
# `sh examples/demo.sh` when `dray` is on the PATH. Every step prints the command it runs, so that it can be typed again.
set -u
here=$(cd "$(dirname "$0")/.." && pwd) || exit 2
DRAY=${DRAY:-dray}
PYTHON=${PYTHON:-python3}
DIRECTORY=${DRAY_DEMO:-$here/.dray-demo}
STOP=${DRAY_DEMO_STOP:-"sh examples/demo.sh stop"}

heading() {
    printf '\n== %s\n\n' "$1"
}

broken() {
    printf '\nthe demo failed: %s\n' "$1" >&2
    [ ! -s "$DIRECTORY/log" ] || sed 's/^/  /' "$DIRECTORY/log" >&2
    stop
    exit 1
}

# Stop the cluster of an earlier run, if it still runs.
stop() {
    [ -s "$DIRECTORY/pid" ] || return 1
    pid=$(cat "$DIRECTORY/pid")
    rm -f "$DIRECTORY/pid"
    kill "$pid" 2>/dev/null || return 1
    for _ in $(seq 40); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.5
    done
    kill -9 "$pid" 2>/dev/null
}

# Print a command, run it, and check its exit code: 0 is yes, 1 is no.
show() {
    expected=$1
    shift
    printf '$ %s\n' "$*"
    "$@"
    [ $? -eq "$expected" ] || broken "\`$*\` did not end with exit code $expected"
}

dray() {
    command "$DRAY" "$@"
}

if [ "${1:-start}" = stop ]; then
    if stop; then echo "stopped the demo; its objects are still in $DIRECTORY/data"; else echo "no demo is running"; fi
    exit 0
fi

stop
rm -rf "$DIRECTORY"
mkdir -p "$DIRECTORY" || exit 2
cd "$here" || exit 2

heading "1. A whole cluster in one process: three nodes, with drivers for GPUs and network cards"
echo "$ dray up --nodes 3 &"
nohup "$DRAY" up --nodes 3 --port 0 --data-dir "$DIRECTORY/data" --log-level warning >"$DIRECTORY/log" 2>&1 </dev/null &
echo $! >"$DIRECTORY/pid"
for _ in $(seq 150); do
    grep -q '^use it with' "$DIRECTORY/log" 2>/dev/null && break
    kill -0 "$(cat "$DIRECTORY/pid")" 2>/dev/null || broken "\`dray up\` does not start"
    sleep 0.2
done
grep -q '^use it with' "$DIRECTORY/log" || broken "\`dray up\` is not ready after 30 seconds"
cat "$DIRECTORY/log"
KUBECONFIG=$DIRECTORY/data/admin.kubeconfig
export KUBECONFIG

heading "2. Claims, templates and pods"
if command -v kubectl >/dev/null 2>&1; then
    kube=kubectl
else
    kube="$PYTHON examples/without_kubectl.py"
fi
show 0 $kube apply -f examples/cluster

# One pod stays without a node, for part 4; all others run within moments.
for _ in $(seq 150); do
    [ "$(dray status 2>/dev/null | grep -c ' running ')" = 7 ] && break
    sleep 0.2
done

heading "3. What runs where, with which device?"
show 0 dray status
show 0 $kube logs train-0 -n ml

heading "4. Why does this pod wait, and what would help?"
show 1 dray explain pod/finetune -n ml

line() {
    printf '  %-41s %s\n' "$1" "$2"
}

heading "Commands to try"
printf '  export KUBECONFIG=%s\n' "$KUBECONFIG"
line "dray status --watch" "what runs where, after every change"
line "kubectl logs -f train-0 -n ml" "the output of a container; its devices are in GPU_* and NIC_*"
line "kubectl describe pod finetune -n ml" "the same explanation as an event"
line "kubectl delete pod train-0 train-1 -n ml" "frees devices, and finetune runs"
line "dray explain pod/finetune -n ml" "with .venv/bin on your PATH, also as \`kubectl dray explain\`"
line "$STOP" "stops the cluster"
echo
line "sh examples/tour.sh" "what dray does with plain files, without a cluster"
line "docs/guides/up.md" "more about clusters like this"
