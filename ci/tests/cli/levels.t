#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the table of what was proved at each level has a row for each level and value profile, keeps what an earlier call
# finished, and counts what failed.
. "$(dirname "$0")/lib.sh"

work=$TMPDIR/work
table() {
    results/tables.py levels --kvbench "$KVBENCH" --work "$work" --run '--workload plain-decode --pool f16 --set oracle-pairs=20000' \
        -o "$TMPDIR/levels.md" "$@"
}
ok "the table of levels, of one small workload" table
here=$(grep -c ' flat done$' "$err")
for level in portable avx2 avxvnni avx512 avx512vnni avx512bf16 avx512fp16 amx; do
    if "$KVBENCH" list suites --cpu-mask $level >"$out" 2>&1; then
        ok "  $level: all five profiles passed" [ "$(grep -cE "^\\| $level \\| [a-z]+ \\| [1-9][0-9]* \\| 0 \\| 1 \\| 1 \\| 0\\.[0-9]+ \\| " \
            "$TMPDIR/levels.md")" = 5 ]
    else
        holds "  $level: the CPU lacks it, and the table says so" "^- $level: the CPU has no " "$TMPDIR/levels.md"
    fi
done
ok "  no other rows" [ "$(grep -c '^| [ap]' "$TMPDIR/levels.md")" = $((5 * here)) ]

cp "$TMPDIR/levels.md" "$TMPDIR/first.md"
sed -i 's/"status": "pass"/"status": "fail"/' "$work/levels-portable-flat.jsonl"
rm "$work/levels-portable-qwen.jsonl"
ok "only what is finished" table --finished
holds "  the rest is said not to be" '^\| portable \| qwen \| not run \|' "$TMPDIR/levels.md"
ok "a second time" table
ok "  only what is missing is run" [ "$(cat "$err")" = "levels: portable qwen done
levels: $TMPDIR/levels.md" ]
holds "  what failed is counted" '^\| portable \| flat \| 0 \| [1-9][0-9]* \| ' "$TMPDIR/levels.md"
ok "  and nothing else has changed" [ "$(diff "$TMPDIR/first.md" "$TMPDIR/levels.md" | grep -c '^>')" = 1 ]

sed -i '1s/"commit": *"[^"]*/"commit": "another/' "$work/levels-portable-flat.jsonl"
expect_exit 1 "runs of two commits are no table" table --finished
holds "  and which they are" '^levels: runs of several commits, .*another.*: remove what is old from ' "$err"
done_testing
