#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `ci/check_arm.sh BUILD CPU TEST…` runs the build in BUILD/arm under qemu-user, each level on one CPU that has it: the unit
# tests, and the replays below, which are judged. The reference kernel must give the digests of this machine's build. At vector
# lengths 256 and 512 a planted fault must be found. Nothing is timed. CPU: runs only that CPU; "planted": only the planted fault.
# KVB_ARM_SUITE="--suite quick": replays that suite instead.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

BUILD=$(realpath "${1:?usage: ci/check_arm.sh BUILD CPU TEST…}") only=${2-}
shift 2
sysroot=$BUILD/arm/sysroot work=$BUILD/arm/check
compiler="aarch64-linux-gnu-gcc --sysroot=$sysroot" # also for plug-ins that tests build
mkdir -p "$work"
export QEMU_LD_PREFIX=$sysroot OPENBLAS_NUM_THREADS=1 KVB_PROGRESS=0 KVB_TUNING=none
export KVB_WORKLOADS=$PWD/workloads/recorded KVB_PLOTS=$PWD/plots

# Rows of 128 channels, which the groups of every format divide; more than a block of 64 cells, and a tail; a fork.
cat >"$work/rows.jsonl" <<'TRACE'
{"kvbench_trace":1,"name":"rows","source":"by hand","model":{"kv_cache.schema_version":1,"kv_cache.layers":1,"kv_cache.heads":4,"kv_cache.kv_heads":2,"kv_cache.k_dim":128,"kv_cache.v_dim":128},"values":{"profile":"llama","seed":1}}
{"prefill":{"seq":0,"from":0,"n":70}}
{"step":{"pos":[70],"seq":[0]}}
{"seq_cp":{"src":0,"dst":1}}
{"step":{"pos":[71,71,72],"seq":[0,1,1]}}
TRACE

# The parts have every kernel, format, cache, mask and scan, but not all pairs of these as the quick suite, which takes hours for
# each level under emulation. Only loops depend on the level, not the caches that they are called for.
flash="--kernel flash*"
parts=("--workload $work/rows.jsonl --cache seq --pool * --pool *+had --pool kivi4 --pool kivi2 $flash --kernel reference"
    "--workload plain-decode --cache * --pool f16 $flash"
    "--workload $work/rows.jsonl --workload agent-fork --cache paged --pool bf16 --pool q8_0 $flash" # pages; else runs
    "--workload eagle-tree --cache tree --pool f16 --pool bf16 $flash"
    "--workload sink-window --workload gpt-oss-like --cache window --pool bf16 $flash" # windows, sinks
    "--workload mla-decode --cache contiguous --pool bf16 $flash"                      # V in K's rows
    "--workload hybrid-decode --workload hybrid-batch --workload spec-hybrid --workload state-fork --cache seq --pool f32 --kernel scan")
planted_part="--workload $work/rows.jsonl --cache seq --pool f32 --pool f16 --pool bf16 --pool q8_0 --pool q4_0 $flash"
judged=(--check --set oracle-pairs=3000 --set opinion-pairs=2000 --set no-witness --timeout 3600)
if [ -n "${KVB_ARM_SUITE-}" ]; then
    parts=("$KVB_ARM_SUITE $flash --kernel scan --kernel reference")
    judged=(--check --set oracle-pairs=20000 --timeout 3600)
fi

# The smallest qemu CPUs for these levels. A CPU uses the last level in its list by itself, the others through --cpu-mask. A larger
# CPU would run the same code. For `max` the length of vectors is chosen.
cpus=("cortex-a72=portable neon" "cortex-a76=neondot" "max,sve=off=neonbf16" "a64fx=sve512" "max,sve128=on=sve128 sve128bf16"
    "max,sve256=on=sve256 sve256bf16" "max,sve512=on=sve512bf16")

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

# Replays the parts one after the other; their records go to RECORDS.0, RECORDS.1, …
run_parts() { # records, mask, command…
    local records=$1 mask=$2 part i=0 wrong=0 words
    shift 2
    for part in "${parts[@]}"; do
        read -ra words <<<"$part" # no word is expanded
        "$@" run "${words[@]}" "${judged[@]}" ${mask:+--cpu-mask "$mask"} -o "$records.$i" >"$records.$i.out" 2>&1 || wrong=1
        i=$((i + 1))
    done
    [ $wrong -eq 0 ] || grep -h -A3 '[1-9][0-9]* failed\|[1-9][0-9]* crashed\|[1-9][0-9]* timed out\|^kvbench run' "$records".*.out
    return $wrong
}
run_arm() { # CPU, level, mask
    run_parts "$work/$2" "${3-}" nice -n 10 qemu-aarch64 -cpu "$1" "$BUILD/arm/kvbench"
}

# The level's records must name the level. A combination that passes on this machine must pass there, and the reference kernel's
# outputs must be the same, bit for bit. No cache, pool or kernel may be missing, and each skip must have a reason.
compare() { # level
    python3 - "$work" "$1" "${#parts[@]}" "$BUILD/kvbench" <<'PY'
import collections, json, re, subprocess, sys
work, level, parts, kvbench = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
def read(name):
    found = {}
    for i in range(parts):
        manifest, *records = [json.loads(line) for line in open(f"{work}/{name}.{i}")]
        assert name == "here" or manifest["isa"] == name, manifest["isa"]
        for r in records:
            found[tuple(r[k] for k in ("workload", "cache", "pool_k", "pool_v", "kernel", "threads"))] = r
    return found
here, there = read("here"), read(level)
passed = {k for k in there if there[k]["status"] == "pass"}
of_level = "flash-f16", "flash-bf16", "flash-amx"  # not every level has these
other = [k for k in here if here[k]["status"] == "pass" and k not in passed and k[4] not in of_level]
assert not other, other
same = [k for k in passed if k[4] == "reference"]
assert len(same) >= 10, len(same)
other = [k for k in same if here[k]["out_digest"] != there[k]["out_digest"]]
assert not other, other
def listed(sort):
    return {row["name"] for row in json.loads(subprocess.check_output([kvbench, "list", sort, "--format", "json"]))}
met = {"caches": {k[1] for k in passed}, "scans": {k[4] for k in passed} | {"scan-reference"},
       "pools": {pool.replace("+had", "") for k in passed for pool in k[2:4]}}
met["pools"] |= {pool[:-2] for pool in met["pools"] if pool.endswith("-k")}  # a pair's name
for sort in met:
    assert listed(sort) <= met[sort], (sort, listed(sort) - met[sort])
kernels = collections.Counter(k[4] for k in passed)
assert {"flash", "flash-int8"} <= set(kernels) and ("flash-bf16" in kernels) == level.endswith("bf16"), kernels
print("   ", ", ".join(f"{kernel} {n}" for kernel, n in sorted(kernels.items())), "passed;",
      f"{len(same)} digests of reference are those of this machine")
skipped = collections.Counter(re.sub(r"^line \d+: ", "", r["reason"]) for r in there.values() if r["status"] == "skip")
assert all(skipped), skipped
for reason, n in skipped.most_common():
    if not reason.startswith("flash-"):  # a format that a kernel does not take
        print(f"    skipped {n}: {reason}")
PY
}

# Plants a fault: lanes that a predicate excludes are used, if 128-bit vectors do not have them.
plant() {
    sed -i 's/svcmpne_n_u32(ALL, svand_n_u32_x(ALL, each, bits), 0)/svorr_b_z(ALL, svcmpge_n_u32(ALL, LANE, 4), &)/' "$1/kernels/vector/vec_sve.h"
    ! cmp -s "$1/kernels/vector/vec_sve.h" kernels/vector/vec_sve.h
}

# Every combination with a vector kernel must fail, also over narrow rows, and none with the reference kernel.
planted_shows() { # CPU, what these must do: fail, or pass
    local words
    read -ra words <<<"$planted_part"
    nice -n 10 qemu-aarch64 -cpu "$1" "$work/planted/build/kvbench" run "${words[@]}" --kernel reference "${judged[@]}" \
        -o "$work/planted-$1" >"$work/planted-$1.out" 2>&1
    python3 - "$work/planted-$1" "$2" <<'PY'
import json, sys
records = [r for r in map(json.loads, list(open(sys.argv[1]))[1:]) if r["status"] != "skip"]
flash = [r for r in records if r["kernel"] != "reference"]
assert {r["kernel"] for r in records} == {"flash", "flash-bf16", "flash-int8", "reference"}
wrong = [(r["kernel"], r["pool_k"], r["status"], r["reason"]) for r in records
         if r["status"] != (sys.argv[2] if r in flash else "pass")]
assert not wrong, wrong
rho = [r["rho"] if isinstance(r["rho"], float) else float("inf") for r in flash]
print(f"    all {len(flash)} {sys.argv[2]}: rho from {min(rho):.3g} to {max(rho):.3g}")
PY
}

[ "$only" = planted ] || check "replayed on this machine" run_parts "$work/here" "" nice -n 10 "$BUILD/kvbench"
for entry in "${cpus[@]}"; do
    cpu=${entry%=*} levels=${entry##*=}
    [ -z "$only" ] || [ "$only" = "$cpu" ] || continue
    echo "== $cpu: $levels"
    [ $# -eq 0 ] || CC=$compiler KVB_TEST_RUNNER="nice -n 10 qemu-aarch64 -cpu $cpu" KVB_TEST_SECONDS=7200 KVB_TEST_LEVELS=$levels \
        check "unit tests" ci/test.sh "$BUILD/arm" "${@/#/$BUILD/arm/tests/}"
    for level in $levels; do
        [ "$level" != "${levels##* }" ] && mask=$level || mask=
        check "replayed at $level" run_arm "$cpu" "$level" "$mask"
        check "  as on this machine" compare "$level"
    done
done

# In a copy of the build only files that include the header are compiled again.
if [ -z "$only" ] || [ "$only" = planted ]; then
    rm -rf "$work/planted" && mkdir -p "$work/planted/build"
    git ls-files -z | xargs -0 cp -p --parents -t "$work/planted"
    find "$BUILD/arm" -mindepth 1 -maxdepth 1 ! -name check ! -name sysroot ! -name tests -exec cp -a -t "$work/planted/build" {} +
    check "a fault is planted" plant "$work/planted"
    check "  and built" make -s -C "$work/planted" -j"$(nproc)" all BUILD=build FACTS=keep CC="$compiler"
    check "  vectors of 256 bits: found" planted_shows max,sve256=on fail
    check "  vectors of 512 bits: found" planted_shows max,sve512=on fail
    check "  vectors of 128 bits have no such lanes" planted_shows max,sve128=on pass
fi
echo "check-arm: $failed failed"
[ "$failed" -eq 0 ]
