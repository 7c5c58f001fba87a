#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: at each level of instruction sets that this CPU has, the kernels below pass the recorded workloads and every format, and
# the codecs of every level give the same rows, bit for bit.
. "$(dirname "$0")/lib.sh"

levels=(portable avx2 avxvnni avx512 avx512vnni avx512bf16 avx512fp16 amx)
# A glob at each level: the kernels whose loops it changes.
declare -A kernels=([avx512bf16]=flash-bf16 [avx512fp16]=flash-f16 [amx]="flash-[ai]*")

# Levels that this CPU has; what it says of the others.
here=()
for level in "${levels[@]}"; do
    "$KVBENCH" list suites --cpu-mask "$level" >"$out" 2>"$err"
    got=$?
    if [ $got -eq 3 ]; then
        holds "$level is missing here, and it is said what # SKIP $(cat "$err")" "--cpu-mask: $level: the CPU has no " "$err"
        one_line "  in one line"
    else
        [ $got -eq 0 ]
        report $? "$level is here" && here+=("$level")
    fi
done

small_trace 2 >"$TMPDIR/small.jsonl" # blocks of 64 cells and a tail

# Where a level changes all kernels, caches and formats are few: a cache for each form of mask, a format for each kind of loop (every
# format is judged below).
few=(--cache contiguous --cache seq --cache window --cache paged --cache shared-prefix --cache tree
    --pool f32 --pool f16 --pool bf16 --pool e4m3-token --pool int8 --pool kivi4 --pool nvfp4)
# The reference kernel is plain C: its bits depend on the stored rows alone, so it runs at the levels that have codecs of their own.
declare -A codecs=([portable]=1 [avx2]=1 [avx512]=1)

began=$SECONDS
quick=(--check --set no-witness --set oracle-pairs="$ORACLE_PAIRS" ${sanitized:+--timeout 1200})
recorded=()
for name in plain-decode agent-fork eagle-tree sink-window mla-decode gpt-oss-like shared-prompt hybrid-decode; do
    recorded+=(--workload "$name")
done
for level in "${here[@]}"; do
    which=()
    [ "${kernels[$level]-}" ] || which=("${few[@]}")
    # At the highest level run.t runs the whole suite. Formats are below.
    [ "$level" = "${here[-1]}" ] || expect_exit 0 "the recorded workloads of the quick suite at $level" "$KVBENCH" run \
        --suite quick "${recorded[@]}" "${which[@]}" \
        --kernel "${kernels[$level]-flash*}" --cpu-mask "$level" "${quick[@]}" -o "$TMPDIR/$level.jsonl"
    expect_exit 0 "every format and transform at $level" "$KVBENCH" run --workload "$TMPDIR/small.jsonl" --cache seq --pool '*' \
        --pool '*+had' --pool kivi4 --kernel "${kernels[$level]-flash*}" ${codecs[$level]+--kernel reference} --cpu-mask "$level" \
        "${quick[@]}" -o "$TMPDIR/rows-$level.jsonl"
done
echo "# $((SECONDS - began)) s for ${#here[@]} levels"

ok "the records name the level, and the rows are the same at every level" python3 - "$TMPDIR" "${here[@]}" <<'PY'
import json, sys
def load(name):
    lines = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.jsonl")]
    return lines[0], lines[1:]
first = None
for level in sys.argv[2:]:
    if level != sys.argv[-1]:
        manifest, records = load(level)
        assert manifest["isa"] == level and len([r for r in records if r["status"] == "pass"]) > 30, level
        assert {r["status"] for r in records} == {"pass", "skip"}
    manifest, records = load("rows-" + level)
    assert manifest["isa"] == level
    rows = {(r["pool_k"], r["pool_v"]): r["out_digest"] for r in records if r["kernel"] == "reference"}
    if level not in ("portable", "avx2", "avx512"):
        assert any(r["status"] == "pass" for r in records), level
        continue
    assert len(rows) >= 40 and all(rows.values()), rows
    first = first or rows
    assert rows == first, [pair for pair in rows if rows[pair] != first[pair]]
PY

"$KVBENCH" run --workload plain-decode --cache seq --pool f32 --kernel openblas --check -o "$TMPDIR/all.jsonl" >"$out"
ok "without a mask: the highest level" grep -q "\"isa\": \"${here[-1]}\"" "$TMPDIR/all.jsonl"
expect_exit 2 "an unknown level" "$KVBENCH" run --cpu-mask sse9
holds "  with what is known" "unknown level 'sse9'; known: portable, avx2, avxvnni, avx512, avx512vnni, avx512bf16, avx512fp16, amx" "$err"
one_line "  in one line"
done_testing
