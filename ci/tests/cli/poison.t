#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: a kernel that reads what the mask hides fails, though 0 times what it read is 0, and the reason says which side's rows of
# which cells; over f32 and over staged rows, in the program's caches and a plug-in's, in a timed run too; an honest one passes.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/hidden.so
ok "the plug-in builds" plugin hidden "$so"
run=("$KVBENCH" run --plugin "$so" --plugin "$BUILD/example-plugin/pages.so")

# fails KERNEL SIDE CELLS OPTION…: no combination passes, each for this reason.
fails() {
    local kernel=$1 side=$2 cells=$3
    shift 3
    rm -f "$TMPDIR/r.jsonl"
    expect_exit 1 "$kernel fails: $*" "${run[@]}" --check --set no-witness --kernel "$kernel" -o "$TMPDIR/r.jsonl" "$@"
    lacks "  everywhere" "\"status\": \"pass\"" "$TMPDIR/r.jsonl"
    holds "  as it reads $side rows of cells that $cells" "\"reason\": \"line [0-9]+: $kernel: .* only with hidden cells poisoned: \
the kernel reads $side rows of cells that $cells;" "$TMPDIR/r.jsonl"
}

for words in 'agent-fork --cache seq --cache slab --cache recompute --cache pages' 'eagle-tree --cache tree' 'sliding-window --cache window'; do
    read -ra of <<<"--workload $words"
    ok "an honest kernel passes: ${of[*]}" "${run[@]}" --check --kernel hidden-none --kernel online --kernel reference \
        --plugin "$BUILD/example-plugin/online.so" --pool f32 --pool bf16 --pool kivi4 --product "${of[@]}"
    fails hidden-k K '(no query sees|query [0-9]+ does not see)' --pool f32 "${of[@]}"
    fails hidden-v V '(no query sees|query [0-9]+ does not see)' --pool bf16 "${of[@]}"
    fails hidden-mates V 'query [0-9]+ does not see' --pool f32 "${of[@]}"
done
fails hidden-stale V 'no query sees' --pool f32 --workload agent-fork --cache slab
one=$(grep -n '"step".*"seq":\[[0-9]*\]' workloads/recorded/agent-fork.jsonl | tail -1 | cut -d: -f1)
fails hidden-stale V 'no query sees' --pool f32 --workload agent-fork --cache slab --only "line=$one" # a step of one token
fails hidden-stale V 'no query sees' --pool kivi4 --workload agent-fork-8x128 --cache slab
fails hidden-counts V 'query [0-9]+ does not see' --pool f32 --workload eagle-tree --cache tree
holds "  where its results are finite, by the oracle" 'rho of layer [0-9], query [0-9]+, head [0-9]+ is [0-9.e+]+ only with' "$TMPDIR/r.jsonl"

timed=(--pool f32 --workload agent-fork --cache slab --set sample-ms=2 --set no-null --set no-machine)
ok "an honest kernel passes a timed run" "${run[@]}" "${timed[@]}" --kernel hidden-none
expect_exit 1 "hidden-v fails a timed run" "${run[@]}" "${timed[@]}" --kernel hidden-v
holds "  for the same reason" 'V rows of cells that'
done_testing
