#!/bin/sh
# Two network namespaces with a cable (a veth pair) between them stand for two machines: the same run by torchrun on
# both and by one process alone must end with the same bits. The bytes that went over the cable are counted.
#
#     benchmarks/two_machines.sh [key=value ...]       # settings of the run, such as method=superfed-mm compress=bytes
#     PYTHON=.venv/bin/python EACH=2 RATE=100mbit benchmarks/two_machines.sh ...
#
# EACH is the processes of a machine, RATE slows the cable down (tc). All of it happens in namespaces of its own, for
# which no rights are needed where users may make them (unshare); they are gone when the script ends.
set -eu
PYTHON=${PYTHON:-.venv/bin/python}
EACH=${EACH:-1}
RATE=${RATE:-}
if [ -z "${INSIDE:-}" ]; then
    INSIDE=1 exec unshare --user --map-root-user --net --mount "$0" "$@"
fi
HERE=$(mktemp -d)
FAR=""
trap 'test -z "$FAR" || kill "$FAR"; rm -rf "$HERE"' EXIT

unshare --net sleep 600 & # the far machine is whoever lives in this network
FAR=$!
sleep 0.5
far() { nsenter --target "$FAR" --net "$@"; }
ip link set lo up
ip link add near0 type veth peer name far0 netns "/proc/$FAR/ns/net"
ip addr add 10.77.0.1/24 dev near0
ip link set near0 up
far ip link set lo up
far ip addr add 10.77.0.2/24 dev far0
far ip link set far0 up
if [ -n "$RATE" ]; then
    tc qdisc add dev near0 root tbf rate "$RATE" burst 64kb latency 400ms
    far tc qdisc add dev far0 root tbf rate "$RATE" burst 64kb latency 400ms
fi
if ip -o -4 addr show | grep -v -e ' lo ' -e 10.77.0 >/dev/null; then
    echo "this namespace sees other networks" >&2
    exit 1
fi
sent() { ip -s -j link show near0 | "$PYTHON" -c 'import json, sys
found = json.load(sys.stdin)[0]["stats64"]
print(found["tx"]["bytes"], found["rx"]["bytes"])'; }

export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
settings="clients=20 cohort=6 rounds=6 eval_every=3 checkpoint_every=3 seed=1"
options="$*"
machine() { # NUMBER DEVICE: the command of a machine
    echo env GLOO_SOCKET_IFNAME="$2" "$PYTHON" -m torch.distributed.run --nnodes 2 --nproc-per-node "$EACH" \
        --node-rank "$1" --master-addr 10.77.0.1 --master-port 29400 -m fedchord run $settings $options \
        executor=ranks out="$HERE/machine-$1"
}

before=$(sent)
$(machine 0 near0) >"$HERE/near.log" 2>&1 &
NEAR=$!
far $(machine 1 far0) >"$HERE/far.log" 2>&1 || { cat "$HERE/far.log" >&2; exit 1; }
wait "$NEAR" || { cat "$HERE/near.log" >&2; exit 1; }
after=$(sent)
"$PYTHON" -m fedchord run $settings $options executor=serial out="$HERE/one" >"$HERE/one.log" 2>&1 || { cat "$HERE/one.log" >&2; exit 1; }
test ! -e "$HERE/machine-1" || { echo "the far machine wrote a folder" >&2; exit 1; }
"$PYTHON" "$(dirname "$0")/same_run.py" "$HERE/one" "$HERE/machine-0"
echo "over the cable: $(echo "$before" "$after" | awk '{printf "%.2f MB from the near machine, %.2f MB to it", ($3-$1)/1e6, ($4-$2)/1e6}'), in all"
