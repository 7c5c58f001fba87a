#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: pools with residual cells hold what the oracle's own codec makes of the order in which each cache writes and moves rows:
# forks, copies, cells that are used again.
. "$(dirname "$0")/lib.sh"

f=$TMPDIR/windowed.jsonl
expect_exit 0 "every cache over pools with residual cells" "$KVBENCH" run --check --product --set no-witness --kernel flash \
    --pool kivi4-k+had --pool k=f16,v=kivi2-v --workload agent-fork-8x128 --workload eagle-tree-8x128 \
    --cache seq --cache slab --cache tree --set oracle-pairs=20000 -o "$f"
python3 - "$f" <<'PY'
import json, sys
ran = [r for r in map(json.loads, list(open(sys.argv[1]))[1:]) if r["status"] == "pass"]
assert {r["cache"] for r in ran} == {"seq", "slab", "tree"}, {r["cache"] for r in ran}
for r in ran:
    looked, error = r["error"]["looked"], r["error"]
    assert looked["opinion"] == looked["scanned"] == error["total_rows"] > error["checked_rows"] > 0, error
    assert 0 < looked["moved"] < error["total_rows"] / 8, error
PY
report $? "  each row of each call is compared, some by the bound of their own sums"
done_testing
