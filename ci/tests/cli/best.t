#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: --kernel best runs for each combination the kernel that was the fastest in the file of an earlier run, and skips
# what is not in it.
. "$(dirname "$0")/lib.sh"

common=(run --workload plain-decode --workload eagle-tree --cache tree --cache seq --set sample-ms=1 --set no-null --set no-machine)
earlier=$TMPDIR/earlier.jsonl
ok "an earlier run of every kernel" "$KVBENCH" "${common[@]}" --pool f32 --pool f16 -o "$earlier"
# Times of a busy machine decide nothing: written into the file instead, the fastest one by turns.
python3 - "$earlier" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
for r in lines[1:]:
    fast = "reference" if (r["workload"] == "plain-decode") == (r["pool_k"] == "f32") else "openblas"
    r["time"]["median"] = {"witness": 1.0, fast: 10.0}.get(r["kernel"], 20.0)
open(sys.argv[1], "w").write("".join(json.dumps(line) + "\n" for line in lines))
PY
expect_exit 0 "a run of the best" "$KVBENCH" "${common[@]}" --pool f32 --pool f16 --pool bf16 --kernel best \
    --kernel witness --best-from "$earlier" --format csv -o "$TMPDIR/best.jsonl"
ok "  takes the fastest of each, and the witness that was named" python3 - "$TMPDIR/best.jsonl" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])][1:]
kernels = {}
for r in records:
    if r["status"] == "pass":
        kernels.setdefault((r["workload"], r["cache"], r["pool_k"]), set()).add(r["kernel"])
assert len(kernels) == 12, kernels
for (workload, cache, pool), found in kernels.items():
    fast = "reference" if (workload == "plain-decode") == (pool == "f32") else "openblas"
    assert found == ({"witness"} if pool == "bf16" else {"witness", fast}), (workload, cache, pool, found)
skipped = {(r["workload"], r["cache"], r["pool_k"], r["kernel"]): r["reason"] for r in records if r["status"] == "skip"}
assert "no kernel passed here in" in skipped["plain-decode", "seq", "bf16", "best"], skipped
PY

ok "at another level" "$KVBENCH" run --workload plain-decode --cache seq --pool f32 --kernel best --cpu-mask portable \
    --best-from "$earlier" --set sample-ms=1 --set no-null --set no-machine
if [ "$(head -n 1 "$earlier" | grep -c '"isa": "portable"')" -eq 0 ]; then
    holds "  it is said" 'was measured at level [0-9a-z]*, this run is at portable$' "$err"
fi
expect_exit 2 "best of what?" "$KVBENCH" run --kernel best
holds "  says how to make such a file" 'needs --best-from F.jsonl: the records of an earlier run' "$err"
one_line "  in one line"
expect_exit 2 "--best-from without best" "$KVBENCH" run --best-from "$earlier"
one_line "  in one line"
expect_exit 2 "best beside another kernel" "$KVBENCH" run --kernel best --kernel openblas --best-from "$earlier"
one_line "  in one line"
echo '{"schema": "kvbench.result/1"}' >"$TMPDIR/old.jsonl"
expect_exit 2 "a file of another schema" "$KVBENCH" run --kernel best --best-from "$TMPDIR/old.jsonl"
holds "  is named" 'old.jsonl:1: ' "$err"
done_testing
