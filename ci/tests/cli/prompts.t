#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: cache paged-prefix finds prompts that begin alike, fewer under a budget, with all checks passing; the record says how many tokens;
# others are offered none.
. "$(dirname "$0")/lib.sh"

run=("$KVBENCH" run --check --kernel reference --kernel witness --pool f32 --set page-cells=8)
three=(--workload prefix-reuse --workload paged-sharing --workload continuous-admission)

# found FILE CACHE: tokens of prompts that were found and offered, over the workloads judged; "none" where none were offered
found()
{
    python3 - "$@" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])][1:]
of = [r["memory"].get("prompts") for r in records if r["cache"] == sys.argv[2] and r["kernel"] == "reference"]
assert of and all(r["status"] == "pass" for r in records), records
print(sum(p["found"] for p in of), sum(p["offered"] for p in of)) if all(of) else print("none")
PY
}

ok "prompts are found" "${run[@]}" "${three[@]}" --cache paged-prefix --cache paged -o "$TMPDIR/all.jsonl"
read -r all offered < <(found "$TMPDIR/all.jsonl" paged-prefix)
ok "  most of their tokens" test "$all" -gt $((offered / 2)) -a "$all" -lt "$offered"
ok "  cache paged is offered none" test "$(found "$TMPDIR/all.jsonl" paged)" = none
ok "a budget" "${run[@]}" "${three[@]}" --cache paged-prefix --set prefix-bytes=2000 -o "$TMPDIR/few.jsonl"
read -r few _ < <(found "$TMPDIR/few.jsonl" paged-prefix)
ok "  less is found, what sequences hold all the same" test "$few" -gt 0 -a "$few" -lt "$all"
ok "hashes of one bit, so that all prompts collide with others" "${run[@]}" "${three[@]}" --workload mixed-pages --cache paged-prefix \
    --set hash-bits=1 -o "$TMPDIR/bit.jsonl"
ok "  all of them" "${run[@]}" "${three[@]}" --workload mixed-pages --cache paged-prefix -o "$TMPDIR/bits.jsonl"
ok "  the same is found" test "$(found "$TMPDIR/bit.jsonl" paged-prefix)" = "$(found "$TMPDIR/bits.jsonl" paged-prefix)"
ok "in twins, in blocks that depend on the order of writes" "${run[@]}" --workload prefix-reuse-8x128 --pool kivi4 --cache paged-prefix
expect_exit 2 "bytes that are none" "${run[@]}" --workload prefix-reuse --set prefix-bytes=many
done_testing
