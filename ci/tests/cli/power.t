#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the table of which slowdowns are found compares runs of one build with each other and with copies made slower, by one
# run a side and by several, and duels builds that differ by a known share of work; it says how busy the machine was. The table of what
# the check finds is made, with what passes through files.
. "$(dirname "$0")/lib.sh"

ok "the table of power, of two small workloads" results/table_power.py --kvbench "$KVBENCH" --work "$TMPDIR/work" \
    --run '--workload plain-decode --workload sink-window --values own --cache seq --pool f32' \
    --slowdowns 0,300 --rounds 2 --nulls 4 --runs 1,2 --draws 3 --plants 1 -o "$TMPDIR/power.md"
page=$TMPDIR/power.md
holds "  counts every pair of runs" '^\| 1 \+ 1 \| [0-6] of 6 \| [0-6] of 6 \| combination \|( [01] of 1 \|){5}$' "$page"
holds "  several runs" '^\| 2 \+ 2 \| [0-3] of 3 \| [0-3] of 3 \| combination \|( [01] of 1 \|){5}$' "$page"
holds "  a duel finds what is four times as slow" '^\| [0-2] of 2 \| [12] of 2 \|$' "$page"
holds "  the slowdown was of about that size" '300 %: \+[234][0-9]{2}\.[0-9] %' "$page"
holds "  the machine and its load are said" '^The machine was shared: load average [0-9.]+ to [0-9.]+' "$page"

# The lines that results/power-of-check.md is made of, of one format.
for program in test_power test_filter; do
    ok "what $program finds in one format" "$BUILD/tests/whole/$program" --table 64 f32
    cp "$out" "$TMPDIR/$program.lines"
done
ok "the table of what the check finds" results/table_power_of_check.py --kvbench "$KVBENCH" --lines "$TMPDIR/test_power.lines" \
    --lines "$TMPDIR/test_filter.lines" -o "$TMPDIR/check.md"
holds "  has what passes through files" '^\| output 0 \| [0-9]+ \| 0 \| 0 of [0-9]+ \| 0 of [0-9]+ \|' "$TMPDIR/check.md"
done_testing
