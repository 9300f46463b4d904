#!/bin/sh
# A tour of what dray does with plain files, on the examples of this directory. `make tour` runs it; so does
# `sh examples/tour.sh` when `dray` is on the PATH. Every step prints the command it runs, so that it can be typed again.
set -u
cd "$(dirname "$0")/.." || exit 2
DRAY=${DRAY:-dray}

heading() {
    printf '\n== %s\n\n' "$1"
}

# Run dray and check its exit code: 0 is yes, 1 is no. A tour that fails must not look like one that works.
show() {
    expected=$1
    shift
    printf '$ dray'
    for word in "$@"; do
        case $word in
            *[\ \(\"]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$DRAY" "$@"
    status=$?
    if [ "$status" -ne "$expected" ]; then
        printf '\nthe tour is broken: expected exit code %s, got %s\n' "$expected" "$status" >&2
        exit 1
    fi
}

cat <<'TEXT'
dray works with the objects by which Kubernetes allocates devices: slices that drivers
publish, classes, claims. It finds the devices for a pod, explains why or why not, and
checks and converts the objects. All of it without a cluster.
TEXT

heading "1. A small cluster: three nodes, two drivers, classes, claims, pods. Is everything valid?"
show 0 lint --complete examples/gpu-cluster

heading "2. Who gets which device?"
show 0 allocate -f examples/gpu-cluster

heading "3. Why these? The devices that were not chosen, and the reason"
show 0 explain -f examples/gpu-cluster pod/train-0 -n ml

heading "4. A pod that requests two GPUs on one node. Why does it wait, and what would help?"
show 1 explain -f examples/gpu-cluster -f examples/waiting pod/finetune -n ml

heading "5. Which devices does a selector match?"
show 0 cel 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("32Gi"))' \
    -f examples/gpu-cluster/gpu-driver-node-a.yaml -f examples/gpu-cluster/gpu-driver-node-b.yaml

heading "6. A field with a typo. An API server may drop it silently, and the claim means something else"
show 1 lint examples/broken/typo-in-field.yaml

heading "7. A claim written for an older version of the API, moved to today's"
show 0 convert --to v1 examples/gpu-cluster/old-claim.yaml

cat <<'TEXT'

== What to try next

  . .venv/bin/activate                     puts `dray` on your PATH
  dray lint examples/broken                every typical mistake, one file each
  dray explain -f DIR                      your own manifests, or the output of `kubectl get -o yaml`
  dray lint -o json DIR                    the findings as JSON, for a program or for CI
  dray gates                               the features behind these objects, each with a feature gate
  dray up                                  a whole cluster for all of it: docs/guides/up.md
  docs/start/ten-minutes.md                the same step by step, and from Python
TEXT
