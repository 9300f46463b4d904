#!/bin/sh
# Try a driver: a cluster without nodes, one node agent, and the driver beside it, each in a process of its own.
#
#   sh examples/drivers/try.sh gpu     start all of it with the driver in examples/drivers/gpu
#   sh examples/drivers/try.sh stop    stop it; the data stays in ./dray-try
#
# Everything is in ./dray-try: the cluster's data, the node's directories and the log of each process (*.log).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
name=${1:?name a driver: cpu, env, first, fpga, gpu, nic; or stop}
work=$PWD/dray-try
node=$work/node
parts="driver classic controller"

start() {  # start NAME COMMAND...: run a process in the background, and record its pid
    what=$1
    shift
    : > "$work/$what.log"
    nohup "$@" >> "$work/$what.log" 2>&1 < /dev/null &
    echo $! > "$work/$what.pid"
}

runs() {  # runs PID: whether a process runs; a zombie does not
    kill -0 "$1" 2> /dev/null && ! grep -qs "^State:.*Z" "/proc/$1/status"
}

wait_for() {  # wait_for NAME TEXT: wait until a text is in the log of a process
    count=0
    until grep -q "$2" "$work/$1.log"; do
        count=$((count + 1))
        if [ $count -gt 600 ] || ! runs "$(cat "$work/$1.pid")"; then
            echo "$1 did not start:" >&2
            cat "$work/$1.log" >&2
            exit 1
        fi
        sleep 0.1
    done
}

stop() {
    for what in $parts node up; do
        if [ -f "$work/$what.pid" ]; then
            pid=$(cat "$work/$what.pid")
            kill "$pid" 2> /dev/null || true
            while runs "$pid"; do sleep 0.1; done
            rm "$work/$what.pid"
        fi
    done
}

if [ "$name" = stop ]; then
    stop
    exit
fi
if [ ! -f "$here/$name/driver.py" ]; then
    echo "there is no driver in $here/$name" >&2
    exit 2
fi

stop
mkdir -p "$work"
start up dray up --nodes 0 --port 0 --data-dir "$work/data"
wait_for up "use it with"
export KUBECONFIG="$work/data/admin.kubeconfig"
# The devices are files of yours in its directory, so its containers are processes of yours, too.
start node dray node --name node-0 --root "$node" --cdi-dir "$node/cdi" --port 0 --stop-pods --container-user agent
wait_for node "drivers register in"
if [ -f "$here/$name/rights.yaml" ]; then
    kubectl apply -f "$here/$name/rights.yaml" > "$work/rights.log"
fi
export NODE_NAME=node-0 DRAY_PLUGINS="$node/plugins" DRAY_PLUGINS_REGISTRY="$node/plugins_registry"
export DRAY_CDI_DIR="$node/cdi" GPU_ILL="$node/ill" FPGA_CARDS="$node/cards"
start driver python "$here/$name/driver.py"
case $name in  # the controller of a classic driver allocates its claims
fpga)
    start controller python "$here/fpga/driver.py" controller --inventory --namespace fpga-system
    ;;
env)
    start classic python "$here/env/classic.py"
    start controller python "$here/env/classic.py" controller
    ;;
esac
wait_for driver "serving"
echo "driver $name is running"
echo "hint: export KUBECONFIG=$KUBECONFIG"
