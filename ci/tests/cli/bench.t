#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `kvbench bench` measures scenes over formats, contexts, batches, heads and threads, or of a model; a kernel that is wrong is
# said and not timed; records are what compare, show and report take; --targets tells every work in a line or two and counts
# targets; --parts measures single loops at every level that the CPU has, and calls of caches; what is not known is refused.
. "$(dirname "$0")/lib.sh"

sweep() {
    "$KVBENCH" bench --seconds 0.01 "$@"
}
ok "kernels beside the limit" sweep --context 64,128 --kv f16,q4_0 --threads 1
holds "  what is measured" '^decode: a token of one sequence$'
holds "  its shape" '^8 KV heads x 128, 4 query heads each, 1 thread$'
holds "  kernels are columns" '^  context  format +flash .* reference *$'
time='([0-9.]+[nums]|noisy)' # the share may be withheld where the time is not
holds "  rows are contexts and formats" "^       64  f16 +$time"
holds "  rows of the longer context, too" "^      128  q4_0 +$time"
holds "  the limits" 'reading the rows at [0-9.]+(e[+-]?[0-9]+)? GB/s'
lacks "  nothing wrong" 'WRONG'
[ "$(wc -L <"$out")" -le 100 ] && [ "$(grep -E '^ +(64|128|context) ' "$out" | wc -L)" -le 80 ]
report $? "  the table has 80 columns"
[ "$(grep -cE '^ +(64|128) ' "$out")" -ge 4 ]
report $? "  a row for each pair"

ok "batches, heads and threads are blocks of their own" sweep --context 64 --batch 1,3 --heads 2/4,1/1 --head-dim 64 --threads 1 \
    --kernel 'flash*' --kernel reference --kv q8_0:q4_0 --format csv
holds "  a batch over one shape" '^decode,decode-2x64-g2-3x64,64,3,1,q8_0,q4_0,flash,pass,'
holds "  one sequence over another" '^decode,decode-1x64-g1-64,64,1,1,q8_0,q4_0,reference,pass,'
[ "$(grep -c ',flash,pass,' "$out")" -eq 4 ]
report $? "  each with each"

ok "every scene" sweep --scene all --context 64 --kv q8_0 --threads 1 --kernel flash --format json
cp "$out" "$TMPDIR/bench.json"
ok "  is told" python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["scene"] for r in rows] == "decode batch fork verify chunk prefill latent window mha mqa".split() + ["state"] * 16, rows
assert all(r["status"] == "pass" and r["rho"] < 1 for r in rows), rows
assert {r["workload"] for r in rows} > {"state-mamba2-128-16", "verify-8x128-g4-64", "window-8x128-g4-w1024-64"}, rows' "$TMPDIR/bench.json"

ok "recurrent states" sweep --scene state --batch 1 --threads 1
holds "  scan kernels are columns" '^ +state +scan +scan-refer *$'
holds "  recurrences are rows" "^ +delta-128 +$time"

ok "a model" sweep --model gpt-oss-20b --context 192 --kv f16 --kernel flash --threads 1
holds "  its layers with a window" '^8 KV heads x 64, 8 query heads each, window of 128, 1 thread: 12 layers$'
holds "  and those without" '^8 KV heads x 64, 8 query heads each, 1 thread: 12 layers$'
holds "  what a sequence takes" '^ +192 cells, f16: 7\.5 MiB$'
lacks "  nothing wrong" 'WRONG'

ok "records" sweep --context 256 --kv f16,q8_0 --threads 1 --kernel flash --kernel reference --seconds 0.03 -o "$TMPDIR/a.jsonl"
ok "  and once more" sweep --context 256 --kv f16,q8_0 --threads 1 --kernel flash --kernel reference --seconds 0.03 -o "$TMPDIR/b.jsonl"
ok "  are shown" "$KVBENCH" show "$TMPDIR/a.jsonl"
holds "  all" '^4 passed, 0 failed'
"$KVBENCH" compare "$TMPDIR/a.jsonl" "$TMPDIR/b.jsonl" --format csv >"$out" 2>"$err"
code=$?
[ $code -eq 0 ] || [ $code -eq 1 ] # a busy machine may be slower
report $? "  are compared"
[ "$(grep -cE ',decode-8x128-g4-256,contiguous,(f16|q8_0),.*,time,' "$out")" -eq 4 ]
report $? "  time by time"
ok "  one with itself" "$KVBENCH" compare "$TMPDIR/a.jsonl" "$TMPDIR/a.jsonl"

cat >"$TMPDIR/wrong.c" <<'END'
#include "attend.h"
#include <string.h>
static bool supports(const kvb_problem *p, char *why, size_t why_bytes) { return (void)p, (void)why, (void)why_bytes, true; }
static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.dot_chain = p->k_dim, .cell_chain = p->n_cells, .rescales = 1, .exp_error = 1e-7, .exp_floor = 1e-30};
}
static int attend(const kvb_attend *x) /* zeros */
{
    memset(x->out, 0, (size_t)x->problem.n_tok * x->problem.n_heads * x->problem.v_dim * sizeof(float));
    return 0;
}
static const kvb_kernel wrong = {.name = "wrong", .summary = "zeros", .masks = KVB_MASKS_ALL, .supports = supports, .arithmetic = arithmetic, .attend = attend};
static const kvb_kernel *const kernels[] = {&wrong, NULL};
KVB_PLUGIN_EXPORT const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "wrong", .kernels = kernels};
END
ok "a wrong kernel" cc -std=c11 -shared -fPIC -Ikernels "$TMPDIR/wrong.c" -o "$TMPDIR/wrong.so"
expect_exit 1 "  fails" sweep --context 128 --kv f32 --threads 1 --kernel flash --plugin "$TMPDIR/wrong.so" -o "$TMPDIR/wrong.jsonl"
holds "  is not timed" '^      128  f32 .* WRONG *$'
holds "  and is told" '^wrong over f32: out of query 0, head 28, channel [0-9]+ is 0, exact '
holds "  in records, too" '"kernel": "wrong".*"status": "fail", "reason": "out of query 0' "$TMPDIR/wrong.jsonl"
ok "a kernel of a plug-in" sweep --context 64 --kv f32,q4_0 --threads 1 --kernel flash --plugin "$BUILD/example-plugin/online.so" --seconds 0.1
holds "  is compared with flash in words, or too noisy" '^online takes [0-9.e+]+ times the time of flash\.$|noisy'
holds "  what it does not read is said" '^-: the kernel does not read these rows itself\.$'

ok "formats" sweep --formats --kv f32,f16,q8_0,q4_0,e4m3-head,tq3 --context 64 --threads 1 --kernel reference -o "$TMPDIR/formats.jsonl"
holds "  have bits, error and best kernel" '^f16 +16 +0\.000[0-9]+ +yes( +reference .*)?$'
[ "$(awk '$1 == "q4_0" { print $2 }' "$out")" = 4.5 ]
report $? "  with the share of scales"
# an error grows as bits get fewer, and f32 has none
awk '$1 == "f32" { f32 = $3 } $1 == "f16" { f16 = $3 } $1 == "q8_0" { q8 = $3 } $1 == "q4_0" { q4 = $3 }
     END { exit !(f32 == 0 && f16 > 0 && f16 * 8 < q8 && q8 * 8 < q4 && q4 < 0.3) }' "$out"
report $? "  in the order that they must have"
holds "  in records, too" '"pool_k": "q4_0".*"bits_k": 4.5.*"rel_l2": 0\.[01]' "$TMPDIR/formats.jsonl"
# A kernel that reads f32 alone: the other formats are not timed.
ok "formats without --kv" sweep --formats --context 64 --heads 1/1 --threads 1 --plugin "$BUILD/example-plugin/online.so" --kernel online
"$KVBENCH" list pools | awk '$1 == "pool" && $2 !~ /^kivi/ { print $2 }' | sort >"$TMPDIR/pools"
awk '$2 ~ /^[0-9.]+$/ { print $1 }' "$out" | sort | cmp - "$TMPDIR/pools"
report $? "  are all whose cells are encoded one by one"
expect_exit 2 "formats of two contexts" sweep --formats --context 256,512
holds "  cannot be compared" '^kvbench bench: --formats: one scene that attends' "$err"
expect_exit 2 "formats and targets" "$KVBENCH" bench --formats --targets
one_line "  in one line"

# A signal ends it with what there is.
stopped '^kvbench bench: \[' "$KVBENCH" bench --seconds 100 --scene all --kv f16,q8_0 --threads 1 --kernel flash
report $((status != 143)) "a signal ends it"
holds "  in one line" '^kvbench bench: stopped by a signal after [0-9]+ of 36 rows$' "$said"

bench() {
    "$KVBENCH" bench --targets "$@"
}

tiny=(--cells 512 --seconds 0.01)
ok "decode in a tiny setting" bench "${tiny[@]}" --work 'decode*16-g4' --work decode-q4_0-g4 --kernel reference
holds "  headings" '^work +kernel +K\+V +time +rate +limit +ratio +\+- +of both +target +met$'
holds "  a line with every column" \
    '^decode-f16-g4 +reference +2\.1 MB +[0-9.]+ .?s +[0-9.]+ GB/s +read [0-9.]+ GB/s +[0-9.]+ +[0-9.]+ +[0-9.]+ +>= 0\.90 +(yes|no)$'
holds "  a line of blocks" '^decode-q4_0-g4 +reference +0\.6 MB .* >= 0\.60 '
lacks "  nothing wrong" 'WRONG|unavailable'
holds "  and counts" '^[0-3] of 3 targets are met\.$'
[ "$(grep -c '^decode' "$out")" -eq 3 ]
report $? "  one line a work"

ok "at a lower level" bench "${tiny[@]}" --work decode-f16-g4 --kernel flash --cpu-mask portable
holds "  which is said" ', portable \(the limit of reading: '

ok "works that compare two ways" bench "${tiny[@]}" --work fork-g1 --work 'batch*' --kernel openblas --threads 1 --format md
holds "  md" '^\| fork-g1 +\| openblas, a call a token +\|'
holds "  the gain" '^\| fork-g1 +\| openblas, gain over a call a token .* 4\.50x the bytes .*>= 5\.00x'
holds "  bit rows beside runs" '^\| batch-in-steps +\| openblas, bit mask +\|'
lacks "  nothing wrong" 'WRONG|unavailable'
holds "  and counts" '^[0-9] of 4 targets are met\.$'

# test_bench.c judges the others, with kernel reference.
ok "works with something against the same without" bench "${tiny[@]}" --work paged-16 --work window-chunk --work softcap-prefill \
    --work latent-f16 --kernel flash
holds "  pages" '^paged-16 +flash, gain over in runs +[0-9.]+x +[0-9.]+ +>= 0\.95x +(yes|no)$'
holds "  windows" '^window-chunk +flash, gain over only what is seen .* >= 0\.90x'
holds "  softcap" '^softcap-prefill +flash, gain over without .* >= 0\.97x'
holds "  latent rows, against the peak" '^latent-f16 +flash +0\.6 MB .* f32 [0-9]+ Gop/s .* >= 0\.80'
lacks "  nothing wrong" 'WRONG|unavailable| nan '

ok "calls for few cells" bench "${tiny[@]}" --work 'call-f16-*64' --kernel reference
holds "  in cycles" '^call-f16-64 +reference, one thread +0\.3 MB +[0-9.]+ .s +[1-9][0-9]+ cycles '
[ "$(grep -c '^call-f16-16x64 ' "$out")" -eq 2 ]
report $? "  of sixteen sequences, too"

ok "threads against one, where there is one" bench "${tiny[@]}" --work threads-decode --kernel reference --threads 1
holds "  says so" 'unavailable: there is but one thread'

ok "json" bench "${tiny[@]}" --work 'context-[12]k' --kernel reference --format json
cp "$out" "$TMPDIR/bench.json"
ok "  is json" python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["work"] for r in rows] == ["context-%dk" % 2**i for i in range(2)]
assert all(r["of both"] >= r["ratio"] >= 0 and "ns/cell" in r["rate"] for r in rows), rows' "$TMPDIR/bench.json"

ok "a machine's record" bench "${tiny[@]}" --work decode-q8_0-g4 --work paged-16 --record-machine "$TMPDIR/machines.jsonl"
ok "  and one more" bench "${tiny[@]}" --work decode-q8_0-g4 --record-machine "$TMPDIR/machines.jsonl"
ok "  are two lines, which say what was measured where" python3 - "$TMPDIR/machines.jsonl" <<'PY'
import json, sys
first, second = [json.loads(line) for line in open(sys.argv[1])]
assert first["schema"] == "kvbench.machines/1" and first["cpu_features"] == second["cpu_features"] and first["cells_at_most"] == 512
assert [r["work"] for r in second["works"]] == ["decode-q8_0-g4"] * 3 and second["targets"] == 1
assert first["works"][-1]["kernel"] == "flash, gain over in runs" and first["cpu_id"] == second["cpu_id"], first
PY
sed -n 's/"cells_at_most":512/"cells_at_most":0/p' "$TMPDIR/machines.jsonl" | head -1 >"$TMPDIR/whole.jsonl"
ok "  a table of it" results/tables.py machines --machines "$TMPDIR/whole.jsonl" --work "$TMPDIR" -o "$TMPDIR/machines.md"
holds "  has shares with their kernels and targets" '^\| decode-q8_0-g4 \| of the limit \| [0-9.]+( \(flash[-0-9a-z]+\))? \| >= 0\.75 \|$' "$TMPDIR/machines.md"
holds "  and gains" '^\| paged-16 \| over the same: in runs \| [0-9.]+x \| >= 0\.95x \|$' "$TMPDIR/machines.md"
ok "  of the machines that were met" results/tables.py machines --work "$TMPDIR" -o "$TMPDIR/machines.md"
ok "  is the one that ships" cmp "$TMPDIR/machines.md" results/machines.md
holds "  with shares of scans, too" '^\| scan-prefill-delta-16 \| of the limit \|.* 0\.[0-9]+ \|' "$TMPDIR/machines.md"
expect_exit 2 "a record that cannot be written" "$KVBENCH" bench --targets "${tiny[@]}" --work decode-f16-g4 --kernel reference --record-machine "$TMPDIR/none/x"
holds "  in one line" '^kvbench bench: --record-machine: .*: No such file or directory$' "$err"

# 14 operations a byte, from memory that is near: arithmetic takes longer than reading. Under a sanitizer the kernel is
# so slow that both shares may round to the same number.
ok "rows of 4 bits, few" bench "${tiny[@]}" --work decode-q4_0-g4 --kernel flash --format json
cp "$out" "$TMPDIR/bench.json"
ok "  are nearer to the longer of both limits than to their own" python3 -c 'import json, sys
row = json.load(open(sys.argv[1]))[0]
assert row["of both"] > row["ratio"] > 0 or row["of both"] == row["ratio"] < 0.05, row' "$TMPDIR/bench.json"

# test_bench.c judges every recurrence.
ok "scan kernels" bench "${tiny[@]}" --cells 64 --work 'scan-*-mamba2-128*' --work scan-prefill-delta-128 --work scan-conv-4
holds "  decoding, against reading and writing" '^scan-decode-mamba2-128-b16 +scan +[0-9.]+ MB .* read\+write [0-9.]+ GB/s .*>= 0\.85 +(yes|no)$'
holds "  prompts, against the peak" '^scan-prefill-delta-128 +scan .* f32 [0-9]+ Gop/s .*>= 0\.50 +(yes|no)$'
holds "  a convolution, against copying" '^scan-conv-4 +scan .* read\+write [0-9.]+ GB/s .*>= 0\.85 +(yes|no)$'
holds "  beside the plain kernel" '^scan-conv-4 +scan, gain over scan-reference .*[0-9.]+x'
lacks "  nothing wrong" 'WRONG'
holds "  and counts" '^[0-9]+ of 5 targets are met\.$'

ok "kernels of a plug-in, and others, beside those of the table" bench "${tiny[@]}" --plugin "$BUILD/example-plugin/online.so" \
    --beside online --beside openblas --work decode-f32-g1
holds "  the table's" '^decode-f32-g1 +flash +.*>= 0\.90 +(yes|no)$'
holds "  the plug-in's, without a target" '^decode-f32-g1 +online +.* [0-9.]+ +[0-9.]+ *$'
holds "  the other" '^decode-f32-g1 +openblas '
holds "  and counts the table's" '^[01] of 1 targets are met\.$'
ok "a kernel that reads no such rows" bench "${tiny[@]}" --plugin "$BUILD/example-plugin/online.so" --beside online --work decode-q4_0-g4
holds "  is told" '^decode-q4_0-g4 +online .*unavailable: '

ok "--help teaches" bench --help
holds "  every option" '--seconds S'

# refuse NAME PATTERN ARGUMENTS…: exit 2, one line on stderr that matches.
refuse() {
    local name=$1 pattern=$2
    shift 2
    expect_exit 2 "$name" bench "$@"
    one_line "  in one line"
    holds "  saying: $pattern" "$pattern" "$err"
}
refuse "a kernel that is not there" "unknown kernel 'nope'; known: reference, " --kernel nope
refuse "none beside" "--beside: unknown kernel 'nope'; known: reference, " --beside nope
refuse "more beside than there is room for" '--beside: at most 6 kernels' --beside reference --beside openblas --beside flash \
    --beside flash-int8 --beside flash-bf16 --beside flash-f16 --beside witness
refuse "no plug-in" 'nope\.so: cannot open' --plugin ./nope.so
refuse "a work that is not there" "no work matches 'nope'; known: decode-f32-g1, " --work nope
[ "$(grep -o 'scan-[a-z0-9-]*' "$err" | wc -l)" -eq 25 ]
report $? "  among them three of each of eight recurrences, and a convolution"
[ "$(grep -o 'context-[0-9]*k' "$err" | wc -l)" -eq 8 ] && [ "$(grep -oE 'call-(f16|q8_0|bf16)-(16x)?[0-9]+' "$err" | wc -l)" -eq 12 ]
report $? "  eight contexts, and calls of a sequence and of sixteen for three formats"
refuse "an unknown option" "unknown option '--fly'; kvbench bench --help lists them" --fly
refuse "an unknown format" "unknown format 'xml'" --format xml
refuse "no time" "--seconds: '0' is not" --seconds 0
refuse "no number" "--seconds: '1x' is not" --seconds 1x
refuse "too few cells" "--cells: '8' is not a whole number of 64 to" --cells 8
refuse "more threads than cores" "--threads: .*1024" --threads 1024
refuse "a scene beside targets" '--targets: goes with' --scene decode
expect_exit 3 "standard output that is full" sh -c '"$@" >/dev/full' sh "$KVBENCH" bench --targets "${tiny[@]}" \
    --work decode-f16-g1 --kernel reference
bench() {
    "$KVBENCH" bench "$@"
}
refuse "a scene that is not there" "--scene: unknown scene 'forks'; did you mean 'fork'?" --scene forks
refuse "a format that is not there" "--kv: unknown format 'q9'" --kv q9
refuse "a format of cells that are encoded together" '--kv: kivi2-k encodes cells together' --kv kivi2-k
refuse "heads that do not divide" "--heads: '3/4' is not KV/Q" --heads 3/4
refuse "no context" '--context: 8 is not one of 64 to' --context 8
refuse "sequences of scenes that have none" '--batch: none of these scenes' --scene fork,verify --batch 2
expect_exit 3 "more cells than there is memory for" bench --context 1M --batch 16 --heads 256/256 --head-dim 4096 --kv f32
holds "  is told" 'at 1048576 cells, f32: needs .* of memory' "$err"
refuse "an empty word" '--kv: an empty word' --kv f16,,q8_0
refuse "a model that is not there" "--model: " --model Llama-9-9B
refuse "heads of a model" '--model: says the heads' --model Llama-3.1-8B --heads 8/32
refuse "latent rows in two formats" '--kv: latent rows' --scene latent --kv f16:q8_0
refuse "a machine's record without targets" '--record-machine: needs --targets' --record-machine "$TMPDIR/x"
refuse "parts at one level" '--parts: goes with --work' --parts --cpu-mask portable
refuse "works without targets" '--work, --cells: need --targets or --caches' --work 'decode*'
refuse "a kernel that is not there, of scenes" "--kernel: no kernel matches 'nope'" --kernel nope

# Levels that have products or loads of their own, of those that the CPU has.
own=$(for level in portable avx2 avxvnni avx512 avx512vnni avx512bf16 avx512fp16 amx; do
    "$KVBENCH" list suites --cpu-mask $level >"$TMPDIR/list" 2>&1 && echo $level
done)
ok "parts of kernels" "$KVBENCH" bench --parts --seconds 0.01 --format csv --work 'dots*' --work '*/q8_0*'
[ "$(head -1 "$out")" = "part,ns a,$(tr '\n' ',' <<<"$own" | sed 's/,*$//'),cycles" ]
report $? "  a column for each level that has a part of its own"
for part in 'dots/f16 x4,cell' 'encode/q8_0,row' 'decode/q8_0+had,row' 'load/q8_0,row' 'int8 query/q8_0,row' 'int8 sums/q8_0 x26,cell'; do
    holds "  $part" "^${part//+/\\+},[0-9.]+"
done
lacks "  every figure is one" 'nan|inf|,0\.00'
ok "calls of caches" "$KVBENCH" bench --parts --seconds 0.001 --work '*/paged x64'
n=' +[0-9.]+'
holds "  in nanoseconds, by cells" "^step all/paged x64 +ns a token$n$n$n\$"
holds "  its tables" "^tables/paged x64 +KiB$n$n$n\$"
holds "  of a tree, proposing and committing" "^tree/paged x64 +ns a node$n$n$n\$"
lacks "  no call that it has not" '^seq_add/paged|^dots'
refuse "a part that is not there" "no part matches 'dotz'; names are as 'dots/f16 x4'" --parts --work dotz
refuse "parts of a scene" '--parts: goes with --work, --seconds and --format alone' --parts --scene decode
done_testing
