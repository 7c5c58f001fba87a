#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the quick suite passes everywhere it can, its records hold what the schema says, and skips are said.
. "$(dirname "$0")/lib.sh"

q=$TMPDIR/q.jsonl
# Unbound: tests that run beside this one are bound to the first core.
quick=(--sample-ms 1 --no-null --no-machine --oversubscribe --oracle-pairs 20000)
ok "the quick suite passes" "$KVBENCH" run --suite quick "${quick[@]}" -o "$q"
holds "  and says so" '^[0-9]+ passed, 0 failed, 0 crashed, 0 timed out, [0-9]+ skipped'

ok "the file has a manifest and at least 60 passing combinations of all that was promised" python3 - "$q" "$KVBENCH" <<'PY'
import json, subprocess, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
manifest, records = lines[0], lines[1:]
assert manifest["schema"] == "kvbench.result/5"
for key in "version commit compiler flags cpu_model cpu_features isa cores memory_bytes openblas_core suite seed date".split():
    assert key in manifest, key
passed = [r for r in records if r["status"] == "pass"]
assert len(passed) >= 60, len(passed)
def covered(key): return {r[key] for r in passed}
assert covered("workload") >= {"plain-decode", "batched-multi-seq", "agent-fork", "eagle-tree"}
assert covered("cache") == {"recompute", "slab", "contiguous", "seq", "tree"}
floats = {"f32", "f16", "bf16"}
# every listed format, over contiguous and over seq, by every kernel that can
listed = {p["name"] for p in json.loads(subprocess.check_output([sys.argv[2], "list", "pools", "--format", "json"])) if p["bits"]}
assert len(listed) >= 25 and listed >= floats, listed
for cache in "contiguous", "seq":
    for kernel in "reference", "openblas", "flash":
        over = {r[side] for r in passed if (r["cache"], r["kernel"]) == (cache, kernel) for side in ("pool_k", "pool_v")}
        assert over >= listed, listed - over
        assert any("+had" in name for name in over)
assert {r["pool_k"] for r in passed if r["kernel"] == "witness"} >= listed - {"tq3"}
narrow = {"avx512bf16": {"flash-bf16"}, "avx512fp16": {"flash-bf16", "flash-f16"}}.get(manifest["isa"], set())
assert covered("kernel") == {"reference", "openblas", "flash", "flash-int8", "witness"} | narrow
for r in records:
    for key in "workload cache pool_k pool_v kernel threads status reason rho error time traffic memory counters".split():
        assert key in r, key
    assert r["status"] in ("pass", "skip") and (r["status"] == "pass") == (r["reason"] is None)
for r in passed:
    assert r["time"]["samples"] > 0 and r["time"]["median"] > 0 and r["time"]["p99"] >= r["time"]["median"]
    assert r["traffic"]["bytes_walk"] >= r["traffic"]["bytes_read"] > 0 and r["traffic"]["gb_per_s"] > 0
    assert r["memory"]["allocator_peak"] >= r["memory"]["reserved_bytes"] > 0
    assert r["memory"]["cells_peak"] > 0 and r["memory"]["resident_peak"] > 0
    assert (r["kernel"] == "witness") == (r["out_digest"] is None)
    if r["kernel"] == "witness":
        assert r["error"]["witness"]["queries"] > 0 and r["rho"] is None
    else:
        assert 1e-4 < r["rho"] <= 1, r  # neither vacuous nor violated
        assert 50 < r["error"]["checked_rows"] < r["error"]["total_rows"]  # a sample: --oracle-pairs is small above
        assert r["error"]["format"]["bits_k"] > 2 and r["growth"] == "double" and r["memory"]["staged"] == ""
# a format's cost is reported apart, and falls with its bits
cost = {r["pool_k"]: r["error"]["format"]["rel_l2"] for r in passed if r["kernel"] == "reference"
        and (r["workload"], r["pool_k"]) == ("plain-decode-8x128", r["pool_v"])}
assert cost["f32"] == 0 < cost["f16"] < cost["bf16"] < cost["q8_0"] < cost["q5_1"] < cost["q4_0"] < cost["a2g128"]
# the same trace over every cache reads the same unique bytes where nothing is fed again
byte = {r["cache"]: r["traffic"]["bytes_read"] for r in passed
        if (r["workload"], r["pool_k"], r["kernel"]) == ("plain-decode", "f32", "reference")}
assert byte["contiguous"] == byte["seq"] == byte["tree"] == byte["slab"]
PY

expect_exit 3 "nothing ran: 3" "$KVBENCH" run --workload eagle-tree --cache contiguous
holds "  with the reason" '^ +[0-9]+  the cache has no tree face'
expect_exit 0 "something else ran: 0" "$KVBENCH" run --workload eagle-tree --cache contiguous --cache tree --pool f16
holds "  and the skip is still counted" '^ +[0-9]+  the cache has no tree face'
expect_exit 0 "with --all" "$KVBENCH" run --workload eagle-tree --cache contiguous --cache tree --pool f16 --kernel reference --all
holds "  the skip is a row" '^eagle-tree +contiguous .* skip .*cache contiguous has no tree face'

ok "K and V pools apart, two threads or one, another profile" "$KVBENCH" run --workload plain-decode --cache seq \
    --pool k=f16,v=f32 --values qwen --kernel reference --threads 1 --format csv -o "$TMPDIR/whole.jsonl"
holds "  all named" 'plain-decode@qwen,seq,.*k=f16.v=f32.*,reference,1,pass'
ok "  every row checked where the oracle has the time" python3 - "$TMPDIR/whole.jsonl" <<'PY'
import json, sys
error = json.loads(open(sys.argv[1]).readlines()[1])["error"]
assert 0 < error["checked_rows"] == error["total_rows"], error
PY
ok "a run over a result file can be shown" "$KVBENCH" show "$q"
holds "  with the machine" '^machine '
ok "--help teaches" "$KVBENCH" run --help
holds "  every option" '--oracle-pairs'
ok "the program's own help" "$KVBENCH" --help
for format in md csv json; do
    ok "--format $format" "$KVBENCH" list --format "$format"
done
"$KVBENCH" list --format json >"$TMPDIR/list.json"
ok "json is json" python3 -m json.tool "$TMPDIR/list.json"
done_testing
