#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: bench-kernels tells every work in a line or two, counts targets, and refuses what it does not know. The other benches run
# to their ends, on every level that the CPU has.
. "$(dirname "$0")/lib.sh"

bench() {
    "$BUILD/bench/kernels" "$@"
}

tiny=(--cells 512 --seconds 0.01)
ok "decode in a tiny setting" bench "${tiny[@]}" --work 'decode*' --kernel reference
holds "  headings" '^work +kernel +K\+V +time +rate +limit +ratio +\+- +of both +target +met$'
holds "  a line with every column" \
    '^decode-f16-g4 +reference +2\.1 MB +[0-9.]+ .?s +[0-9.]+ GB/s +read [0-9.]+ GB/s +[0-9.]+ +[0-9.]+ +[0-9.]+ +>= 0\.90 +(yes|no)$'
holds "  a line of blocks" '^decode-q4_0-g4 +reference +0\.6 MB .* >= 0\.60 '
lacks "  nothing wrong" 'WRONG|unavailable'
holds "  and counts" '^[0-9]+ of 12 targets are met\.$'
[ "$(grep -c '^decode' "$out")" -eq 12 ]
report $? "  one line a work"

ok "works that compare two ways" bench "${tiny[@]}" --work fork-g1 --work 'batch*' --kernel openblas --threads 1 --format md
holds "  md" '^\| fork-g1 +\| openblas, a call a token +\|'
holds "  the gain" '^\| fork-g1 +\| openblas, gain over a call a token .* 4\.50x the bytes .*>= 5\.00x'
holds "  bit rows beside runs" '^\| batch-in-steps +\| openblas, bit mask +\|'
lacks "  nothing wrong" 'WRONG|unavailable'
holds "  and counts" '^[0-9] of 4 targets are met\.$'

ok "works with something against the same without" bench "${tiny[@]}" --work 'paged-*' --work 'window-*' --work '*-prefill' \
    --work 'latent-*' --kernel flash
holds "  pages" '^paged-16 +flash, gain over in runs +[0-9.]+x +[0-9.]+ +>= 0\.95x +(yes|no)$'
holds "  windows" '^window-chunk +flash, gain over only what is seen .* >= 0\.90x'
holds "  softcap" '^softcap-prefill +flash, gain over without .* >= 0\.97x'
holds "  latent rows, against the peak" '^latent-f16 +flash +0\.6 MB .* f32 [0-9]+ Gop/s .* >= 0\.80'
lacks "  nothing wrong" 'WRONG|unavailable| nan '

ok "calls for few cells" bench "${tiny[@]}" --work 'call-*' --kernel reference
holds "  in cycles" '^call-f16-64 +reference, one thread +0\.3 MB +[0-9.]+ .s +[1-9][0-9]+ cycles '
[ "$(grep -c '^call-' "$out")" -eq 24 ]
report $? "  of a sequence and of sixteen, for three formats"

ok "threads against one, where there is one" bench "${tiny[@]}" --work threads-decode --kernel reference --threads 1
holds "  says so" 'unavailable: there is but one thread'

ok "json" bench "${tiny[@]}" --work 'context-*k' --kernel reference --format json
cp "$out" "$TMPDIR/bench.json"
ok "  is json" python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["work"] for r in rows] == ["context-%dk" % 2**i for i in range(8)]
assert all(r["of both"] >= r["ratio"] >= 0 and "ns/cell" in r["rate"] for r in rows), rows' "$TMPDIR/bench.json"

# 14 operations a byte, from memory that is near: arithmetic takes longer than reading.
ok "rows of 4 bits, few" bench "${tiny[@]}" --work decode-q4_0-g4 --kernel flash --format json
cp "$out" "$TMPDIR/bench.json"
ok "  are nearer to the longer of both limits than to their own" python3 -c 'import json, sys
row = json.load(open(sys.argv[1]))[0]
assert row["of both"] > row["ratio"] > 0, row' "$TMPDIR/bench.json"

ok "scan kernels" bench "${tiny[@]}" --cells 64 --work 'scan-*'
holds "  decoding, against reading and writing" '^scan-decode-mamba2-128-b16 +scan +[0-9.]+ MB .* read\+write [0-9.]+ GB/s .*>= 0\.85 +(yes|no)$'
holds "  prompts, against the peak" '^scan-prefill-delta-128 +scan .* f32 [0-9]+ Gop/s .*>= 0\.50 +(yes|no)$'
holds "  beside the plain kernel" '^scan-prefill-conv-4 +scan, gain over scan-reference .*[0-9.]+x'
lacks "  nothing wrong" 'WRONG'
holds "  and counts" '^[0-9]+ of 24 targets are met\.$'

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
refuse "an unknown option" "unknown option '--fly'; known: --work" --fly
refuse "an unknown format" "unknown format 'xml'" --format xml
refuse "no time" "--seconds: '0' is not" --seconds 0
refuse "no number" "--seconds: '1x' is not" --seconds 1x
refuse "too few cells" "--cells: '8' is not a whole number of 64 to" --cells 8
refuse "more threads than cores" "--threads: 1024 threads on a machine of" --threads 1024
expect_exit 3 "standard output that is full" sh -c '"$@" >/dev/full' sh "$BUILD/bench/kernels" "${tiny[@]}" \
    --work decode-f16-g1 --kernel reference

# Levels that have products or loads of their own, of those that the CPU has.
own=$(for level in portable avx2 avx512 avx512vnni avx512bf16 avx512fp16; do
    "$KVBENCH" list suites --cpu-mask $level >"$TMPDIR/list" 2>&1 && echo $level
done)
ok "loops" "$BUILD/bench/loops"
[ "$(sed 's/ .*//' "$out" | uniq)" = "$own" ]
report $? "  a part at least of every level"
lacks "  every figure is one" 'nan|inf|\?| 0\.0 |-[0-9]'
for level in $own; do
    ok "blocks at $level" "$BUILD/bench/blocks" 8_0 "$level"
    holds "  a line" '^int8/q8_0 +[0-9]+( +[0-9]+\.[0-9]+){18}$'
done
ok "load" "$BUILD/bench/load" q8_0
holds "  a line" '^q8_0( +[0-9.]+ ns +[0-9.]+)+$'
lacks "  every figure is one" ' 0\.0'
lacks "  no level that loads as the one below does" 'avx512bf16|avx512fp16'
ok "codecs" "$BUILD/bench/codecs" q8_0
holds "  a line" '^q8_0 +decode( +[0-9.]+ ns +[0-9.]+ GB/s +[0-9.]+x)+$'
ok "caches" "$BUILD/bench/caches" '' 1024
n='( +[0-9.]+)'
holds "  of a cache what it can do: shifts and trees" "^seq +1024 +16 +4096$n{9} +-$n{4}\$"
holds "  no trees" "^slab +1024 +16 +4096$n{6} +-$n +- +-$n{4}\$"
holds "  no shifts" "^paged +1024 +16 +4096$n{5} +- +- +-$n +-$n{4}\$"
holds "  prompts" "^paged-prefix +1024 +16 +4096$n{5} +- +- +- +-$n{5}\$"
holds "  one sequence" "^tree +1024 +1 +4096$n{2} +- +- +- +- +- +-$n +-$n{4}\$"
holds "  large rows" "^q8_0 +256$n{8}\$"
lacks "  every figure is one" 'nan|inf| 0 | 0\.0 '
done_testing
