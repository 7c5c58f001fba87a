#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the levels avxvnni and amx are right on a CPU that lacks their instructions. Programs that have the levels' loops with the
# instructions emulated pass the tests of loops and kernels, and judge every format; the loops that are shipped have the
# instructions, of AVX-VNNI in the form that needs no AVX-512.
. "$(dirname "$0")/lib.sh"

grep -qw avx2 /proc/cpuinfo || skip_all "the CPU has no avx2"
emulated=$BUILD/emulated

shown() { # objects: loops as they are shipped
    (cd "$TMPDIR" && ar x "$BUILD/libkernels.a" "$@" && objdump -d --no-show-raw-insn "$@")
}
ok "the loops of avxvnni as they are shipped" shown int8_{pack,products}.avxvnni.o
ok "  multiply by the instruction" [ "$(grep -c '{vex} vpdpbusd' "$out")" -gt 100 ]
lacks "  and by none of AVX-512" 'zmm|\{evex\}|ymm(1[6-9]|2[0-9]|3[01])|%k[0-7]'
ok "the loops of amx as they are shipped" shown {int8_products,amx_blocks}.amx.o
holds "  multiply integers by tiles" 'tdpbsud '
holds "  and bf16" 'tdpbf16ps '

export KVB_TEST_LEVELS="avx2 avxvnni" # avx2: its loops and the level's have the same bits
for test in test_codes test_cpu_mask; do
    ok "$test" "$emulated/$test"
done
"$emulated/kvbench" list suites --cpu-mask amx >"$out" 2>&1 && amx=1 || amx=0 # has the CPU its other loops?
if [ $amx = 1 ]; then
    export KVB_TEST_LEVELS="avx512vnni amx" # the same bits once more
    for test in test_codes test_loops; do
        ok "$test by tiles" "$emulated/$test"
    done
    KVB_TEST_LEVELS=amx ok "test_attend by tiles" "$emulated/test_attend"
fi

small_trace 4 >"$TMPDIR/small.jsonl" # blocks of 64 cells and a tail
judge() { # level, words: by the program that emulates
    local level=$1
    shift
    "$emulated/kvbench" run --cpu-mask "$level" --kernel 'flash*' --set no-witness --check --set oracle-pairs="$ORACLE_PAIRS" \
        ${sanitized:+--timeout 1200} "$@" -o "$TMPDIR/$level.jsonl"
}
ok "recorded workloads" judge avxvnni --workload plain-decode --workload agent-fork --workload mla-decode --pool int8 --pool int8-asym
every_format() { # level, words
    ok "every format at $1" judge "$@" --workload "$TMPDIR/small.jsonl" --cache seq --pool '*' --pool '*+had' --pool kivi4
}
digests=(--set oracle-pairs=1 --set opinion-pairs=1) # for comparison: isa.t judges these levels
every_format avx2 "${digests[@]}"
every_format avxvnni
if [ $amx = 1 ]; then
    ok "recorded workloads by tiles" judge amx --workload agent-fork --workload mla-decode --pool int8 --pool bf16
    every_format avx512bf16 "${digests[@]}"
    every_format amx
fi
ok "loops over floats are those of avx2, codecs too; flash-int8 differs in scores alone, and by tiles in nothing" python3 - \
    "$TMPDIR" $amx <<'PY'
import json, sys
def load(level):
    lines = [json.loads(line) for line in open(f"{sys.argv[1]}/{level}.jsonl")]
    assert lines[0]["isa"] == level
    return {(r["kernel"], r["pool_k"], r["pool_v"]): r["out_digest"] for r in lines[1:] if r["status"] == "pass"}
old, new = load("avx2"), load("avxvnni")
assert old.keys() == new.keys() and len(old) > 60
other = {key[0] for key in old if old[key] != new[key]}
assert other <= {"flash-int8"}, other
assert sum(key[0] == "flash-int8" for key in old) >= 15
if sys.argv[2] == "1":
    old, new = load("avx512bf16"), load("amx")
    assert new.keys() - old.keys() == {key for key in new if key[0] == "flash-amx"} and len(new) > len(old) > 60
    assert all(new[key] == old[key] for key in old), [key for key in old if new[key] != old[key]]
PY
done_testing
