#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `ci/check_arm.sh BUILD CPU TEST…`: runs the build of BUILD/arm under qemu-user, once for each CPU that has a level of its own
# (CPU: that one alone): the unit tests; the quick suite, judged; and for the reference kernel the same digests as the build for this
# machine has. At vector lengths 256 and 512 a planted fault must be found. Nothing is timed. KVB_ARM_SUITE: other words that
# choose what is run than `--suite quick`.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

BUILD=$(realpath "${1:?usage: ci/check_arm.sh BUILD CPU TEST…}") only=${2-}
shift 2
sysroot=$BUILD/arm/sysroot work=$BUILD/arm/check
mkdir -p "$work"
export QEMU_LD_PREFIX=$sysroot OPENBLAS_NUM_THREADS=1 KVB_PROGRESS=0 KVB_OPENBLAS_NOTE=
export KVB_WORKLOADS=$PWD/workloads/recorded KVB_PLOTS=$PWD/plots
read -ra suite <<<"${KVB_ARM_SUITE:---suite quick}"
judged=(--check --oracle-pairs 20000)

# The level that a CPU of qemu must run at. Of `max` the vectors' length is chosen.
cpus=("cortex-a72=neon" "cortex-a76=neondot" "max,sve=off=neonbf16" "a64fx=sve512" "max,sve128=on=sve128bf16"
    "max,sve256=on=sve256bf16" "max,sve512=on=sve512bf16")
# Levels that are those of another CPU without its BF16: by --cpu-mask.
declare -A masks=([max,sve128=on]=sve128 [max,sve256=on]=sve256)

failed=0
check() { # what, command…
    local what=$1 began=$SECONDS
    shift
    if "$@"; then
        echo "ok: $what ($((SECONDS - began)) s)"
    else
        echo "FAILED: $what: $*"
        failed=$((failed + 1))
    fi
}

run_arm() { # program, CPU, records, words…
    local program=$1 cpu=$2 records=$3
    shift 3
    nice -n 10 qemu-aarch64 -cpu "$cpu" "$program" run "${suite[@]}" "${judged[@]}" --kernel 'flash*' --kernel scan --kernel reference \
        "$@" -o "$records" >"$records.out" 2>&1
}

same_digests() { # records of this machine, of the other, its level
    python3 - "$@" <<'PY'
import json, sys
def read(path):
    lines = [json.loads(line) for line in open(path)]
    key = "workload", "cache", "pool_k", "pool_v", "kernel", "threads"
    return lines[0], {tuple(r[k] for k in key): r for r in lines[1:]}
(_, here), (manifest, there) = read(sys.argv[1]), read(sys.argv[2])
assert manifest["isa"] == sys.argv[3], manifest["isa"]
same = [k for k in here if "reference" in k and here[k]["status"] == "pass" and k in there]
assert len(same) >= 10, len(same)
other = [k for k in same if here[k]["out_digest"] != there[k]["out_digest"]]
assert not other, other
print(f"    {len(same)} digests of the reference kernel are those of this machine")
PY
}

# Lanes that a predicate leaves out, of those that vectors of 128 bits do not have, are taken all the same.
plant() {
    sed -i 's/svcmpne_n_u32(ALL, svand_n_u32_x(ALL, each, bits), 0)/svorr_b_z(ALL, svcmpge_n_u32(ALL, LANE, 4), &)/' "$1/kernels/vector/vec_sve.h"
    ! cmp -s "$1/kernels/vector/vec_sve.h" kernels/vector/vec_sve.h
}

planted_is_found() { # CPU, level
    ! run_arm "$work/planted/build/kvbench" "$1" "$work/planted-$1.jsonl" --cpu-mask "$2" &&
        grep -q '[1-9][0-9]* failed' "$work/planted-$1.jsonl.out"
}

check "the quick suite on this machine" "$BUILD/kvbench" run "${suite[@]}" "${judged[@]}" --kernel reference -o "$work/here.jsonl" >"$work/here.out"
for entry in "${cpus[@]}"; do
    cpu=${entry%=*} level=${entry##*=}
    [ -z "$only" ] || [ "$only" = "$cpu" ] || continue
    echo "== $cpu: $level"
    KVB_TEST_RUNNER="nice -n 10 qemu-aarch64 -cpu $cpu" check "unit tests" ci/test.sh "$BUILD/arm" "${@/#/$BUILD/arm/tests/}"
    check "quick suite at $level" run_arm "$BUILD/arm/kvbench" "$cpu" "$work/$level.jsonl"
    check "  digests" same_digests "$work/here.jsonl" "$work/$level.jsonl" "$level"
    mask=${masks[$cpu]-}
    [ -z "$mask" ] || check "quick suite at $mask" run_arm "$BUILD/arm/kvbench" "$cpu" "$work/$mask.jsonl" --cpu-mask "$mask"
done

if [ -z "$only" ] || [ "$only" = planted ]; then
    rm -rf "$work/planted" && mkdir -p "$work/planted"
    git ls-files -z | xargs -0 cp --parents -t "$work/planted"
    check "a fault is planted" plant "$work/planted"
    check "  and built" make -s -C "$work/planted" -j"$(nproc)" all BUILD=build CC="aarch64-linux-gnu-gcc --sysroot=$sysroot"
    check "  found in vectors of 256 bits" planted_is_found max,sve256=on sve256bf16
    check "  found in vectors of 512 bits" planted_is_found max,sve512=on sve512bf16
    check "  in vectors of 128 bits there is none" run_arm "$work/planted/build/kvbench" max,sve128=on "$work/planted-128.jsonl"
fi
echo "check-arm: $failed failed"
[ "$failed" -eq 0 ]
