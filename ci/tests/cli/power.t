#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the table of which slowdowns are found runs every method over builds that differ by a known share of work, counts
# what each one names, and says how large the slowdowns and how busy the machine was.
. "$(dirname "$0")/lib.sh"

ok "the table of power, of two small workloads" results/table_power.py --kvbench "$KVBENCH" --work "$TMPDIR/work" \
    --run '--workload plain-decode --workload sink-window --values own --cache seq --pool f32' \
    --slowdowns 0,300 --rounds 3 -o "$TMPDIR/power.md"
page=$TMPDIR/power.md
holds "  counts every pair of runs" '^\| `compare` of two files, 50 ms \| 1 \+ 1 \| [0-9]+ \| [0-9] of 9 \| [0-9] of 9 \|$' "$page"
holds "  histories" '^\| `compare --history`, 50 ms \| 3 \+ 3 \| [0-9]+ \| [0-9] of 9 \| [0-9] of 9 \|$' "$page"
holds "  a duel finds what is four times as slow" '^\| duel of plug-ins, 50 ms a side \| in turns \| [0-9]+ \| [0-3] of 3 \| [1-3] of 3 \|$' "$page"
holds "  the slowdown was of about that size" '300 %: \+[234][0-9]{2}\.[0-9] %' "$page"
holds "  the machine and its load are said" '^The machine was shared: load average [0-9.]+ to [0-9.]+' "$page"
done_testing
