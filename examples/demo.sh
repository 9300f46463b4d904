#!/bin/sh
# A walk through what dray can do, on the examples of this folder. `make demo` runs it; so does `sh examples/demo.sh`
# when `dray` is on the PATH. Every step prints the command it runs, so that it can be typed again.
set -u
cd "$(dirname "$0")/.." || exit 2
DRAY=${DRAY:-dray}

heading() {
    printf '\n== %s\n\n' "$1"
}

# Run dray and check that it ends as it should: 0 is yes, 1 is no. A demo that breaks must not look like one that works.
show() {
    expected=$1
    shift
    printf '$ dray %s\n' "$*"
    "$DRAY" "$@"
    status=$?
    if [ "$status" -ne "$expected" ]; then
        printf '\nthe demo is broken: expected exit code %s, got %s\n' "$expected" "$status" >&2
        exit 1
    fi
}

cat <<'TEXT'
dray knows the objects with which Kubernetes hands out devices: slices that drivers
publish, classes, claims. It checks and converts them, without a cluster.
TEXT

heading "1. A small cluster: three nodes, two drivers, classes, claims, pods. Is everything in order?"
show 0 lint --complete examples/gpu-cluster

heading "2. A field with a typo. An API server may drop it without a word, and the claim means something else"
show 1 lint examples/broken/typo-in-field.yaml

heading "3. A claim written for an older version of the API. The finding says what to write instead"
show 1 lint examples/broken/flattened-request.yaml

heading "4. Two slices that publish one device: wrong only when seen together"
show 1 lint examples/broken/same-device-twice.yaml

heading "5. A claim in v1beta1, moved to v1"
show 0 convert --to v1 examples/gpu-cluster/old-claim.yaml

heading "6. The features behind these objects, each with a switch"
show 0 gates

cat <<'TEXT'

== What to try next

  . .venv/bin/activate                     puts `dray` on your PATH
  dray lint examples/broken                every typical mistake, one file each
  dray lint FOLDER                         your own manifests, or the output of `kubectl get -o yaml`
  dray lint -o json FOLDER                 the same for a program, or for CI
  dray convert --to v1 FILE                your own claims and slices
  docs/start/ten-minutes.md                the same at walking pace, and from Python
TEXT
