#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the quick suite passes, covers every pair of what it names, and its records hold what the schema says; --check judges the
# same, several at once; skips are said; a workload without tokens is one.
. "$(dirname "$0")/lib.sh"

q=$TMPDIR/q.jsonl timed=$TMPDIR/timed.jsonl
ok "the quick suite passes" "$KVBENCH" run --suite quick --check --set oracle-pairs="$ORACLE_PAIRS" -o "$q"
holds "  and says so" '^[0-9]+ passed, 0 failed, 0 crashed, 0 timed out, [0-9]+ skipped'
holds "  and what it leaves out" '^every pair of history, shape, cache, pool and kernel; [0-9]+ more combinations could run \(--product\)'
# Unbound: tests that run beside this one are bound to the first core.
ok "a part of it, timed" "$KVBENCH" run --suite quick --product --kernel flash --kernel scan --workload plain-decode-2x128 --workload sink-window --workload eagle-tree \
    --workload hybrid-decode --workload state-fork --pool f32 --pool f16 --pool q4_0 --set sample-ms=1 --set no-null --set no-machine \
    --set oversubscribe --set oracle-pairs="$ORACLE_PAIRS" -o "$timed"
holds "  passes" '^[0-9]+ passed, 0 failed, 0 crashed, 0 timed out, [0-9]+ skipped'

ok "the files have a manifest and all pairs that were promised" python3 - "$q" "$KVBENCH" "$timed" <<'PY'
import json, re, subprocess, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
manifest, calls = lines[0], [r for r in lines[1:] if r["workload"] == "calls"]
records = [r for r in lines[1:] if r["workload"] != "calls"]
calls = [r for r in calls if r["status"] != "skip" or not r["reason"].startswith("the CPU has no ")]
assert manifest["schema"] == "kvbench.result/5" and manifest["suite"] == "quick, pairs"
for key in "version commit compiler flags cpu_model cpu_features isa cores memory_bytes openblas_core suite seed date".split():
    assert key in manifest, key
passed = [r for r in records if r["status"] == "pass"]
def covered(*keys): return {tuple(r[key] for key in keys) for r in passed}
def product(*lists): return set(__import__("itertools").product(*lists))
small = {"plain-decode", "batched-multi-seq", "agent-fork", "eagle-tree", "parallel-sample", "sliding-window", "sink-window",
         "mla-decode", "gpt-oss-like", "prefix-reuse", "paged-sharing", "continuous-admission", "context-shift", "shared-prompt",
         "long-fill", "beam-search", "chunked-local", "save-restore"}
written = {"engine-calls", "full-cache", "prompt-swap", "draft-calls", "draft-shifts", "draft-divisions", "prompt-drafts",
           "prompt-shifts", "mixed-pages", "many-holders", "two-in-turns", "window-edge", "narrow-rows", "padded-batch"}
small |= written
hybrids = {"hybrid-decode", "hybrid-batch", "spec-hybrid", "state-fork", "short-prompts"}
caches = {"recompute", "slab", "contiguous", "seq", "window", "paged", "paged-prefix", "shared-prefix", "tree"}
narrow = {"avx512bf16": {"flash-bf16"}, "avx512fp16": {"flash-bf16", "flash-f16"}, "amx": {"flash-bf16", "flash-f16", "flash-amx"}}.get(manifest["isa"], set())
kernels = {"reference", "openblas", "flash", "flash-int8", "witness"} | narrow
for r in calls: # single calls: every value of the axes that the kernel takes
    assert r["status"] == "pass" and r["axes"]["calls"] >= 300 and r["axes"]["wrong"] == 0, r
    assert r["axes"]["values"] == r["axes"]["values_of"] > 100 and r["axes"]["uncovered"] == ""
    assert 0.8 < r["axes"]["pairs"] / r["axes"]["pairs_of"] <= 1
assert {r["kernel"] for r in calls} == kernels - {"witness"} | {"scan", "scan-reference"}
history = lambda r: (re.fullmatch("(.*?)(-[1-9][0-9]*x[0-9x]+)?", r["workload"]).group(1), r["cache"])
witnessed = {history(r) for r in passed if r["kernel"] == "witness"}
# rows of narrow-rows are too short for tags
assert witnessed == {history(r) for r in passed if "scan" not in r["kernel"] and r["workload"] != "narrow-rows"}, "a history that nobody watched over a cache"
assert 2 * len([r for r in passed if r["kernel"] == "witness"]) < len(passed)
assert covered("workload") == {(w,) for w in small | hybrids | {"plain-decode-2x128", "batched-multi-seq-2x128@grid"}}
assert covered("cache", "kernel") == product(caches, kernels) - {("window", "flash-int8")} | product(caches - {"window"}, {"scan", "scan-reference"}) # windows are in f32, f16, bf16 here
# every listed format by every kernel that can, and over every cache but window, which needs one of the small workloads
listed = {p["name"] for p in json.loads(subprocess.check_output([sys.argv[2], "list", "pools", "--format", "json"])) if p["bits"]}
floats = {"f32", "f16", "bf16"}
assert len(listed) >= 25 and listed >= floats, listed
for side in "pool_k", "pool_v":
    beside = "pool_v" if side == "pool_k" else "pool_k"
    other = {name for name in listed if not covered(side) >= {(name,)}} # kivi's K is no V
    assert all(name.startswith("kivi") for name in other), other
    assert covered("kernel", side) >= product({"reference", "openblas", "flash"}, listed - other)
    assert covered("kernel", side) >= product({"witness"}, listed - other - {"tq3"})
    copied = {name for name in listed if not name.startswith("kivi")} # what shared-prefix can copy as it lies
    assert covered("cache", side) >= product(caches - {"window", "shared-prefix"}, listed - other) | product({"shared-prefix"}, copied)
    assert covered("cache", side) >= product({"window"}, floats)
assert any("+had" in r["pool_k"] for r in passed)
timed = [json.loads(line) for line in open(sys.argv[3])][1:]
assert {r["cache"] for r in timed if r["status"] == "pass"} == caches and len(timed) > 60, len(timed)
for r in records + timed:
    for key in "workload cache pool_k pool_v kernel threads status reason rho error time traffic memory counters".split():
        assert key in r, key
    assert r["status"] in ("pass", "skip") and (r["status"] == "pass") == (r["reason"] is None)
for r in passed + [r for r in timed if r["status"] == "pass"]:
    assert r["traffic"]["bytes_walk"] >= r["traffic"]["bytes_read"] > 0 and r["memory"]["cells_peak"] > 0
    assert r["memory"]["allocator_peak"] >= r["memory"]["reserved_bytes"] > 0
    assert (r["kernel"] == "witness") == (r["out_digest"] is None)
    if r["kernel"] == "witness": # it computes nothing: it is not timed
        assert r["error"]["witness"]["queries"] > 0 and r["rho"] is None
        assert r["time"]["samples"] == 0 and r["time"]["median"] is None
        continue
    assert 1e-5 < r["rho"] <= 1, r  # neither vacuous nor violated
    assert 40 < r["error"]["checked_rows"] <= r["error"]["total_rows"]
    both = hybrids - {"state-fork"}
    assert r.get("beside") == (None if r["workload"] not in both else "flash" if r["kernel"].startswith("scan") else "scan"), r
    if r["workload"] not in hybrids | written | {"long-fill", "beam-search"}:
        assert r["error"]["checked_rows"] < r["error"]["total_rows"]  # a sample: the knob oracle-pairs is small above
    assert r["workload"] == "state-fork" or r["error"]["format"]["bits_k"] > 2 # which has no rows
    assert r["growth"] == (re.findall(r"growth=(\w+)", r.get("setting") or "") or ["double"])[0], r
    # openblas reads one region: rows behind a front are staged for it, unless nothing was copied
    staged = {"", "kv"} if (r["cache"], r["kernel"]) == ("shared-prefix", "openblas") else {""}
    assert r["memory"]["staged"] in staged, r
for r in timed:
    if r["status"] == "pass" and r["kernel"] != "witness":
        assert r["time"]["samples"] > 0 and r["time"]["median"] > 0 and r["time"]["p99"] >= r["time"]["median"]
        nothing = (r["cache"], r["workload"]) == ("recompute", "state-fork") # no rows, and states from the beginning
        assert (nothing or r["traffic"]["gb_per_s"] > 0) and r["memory"]["resident_peak"] > 0
# a format's cost is reported apart, and falls with its bits
cost = {(r["workload"], r["pool_k"]): r["error"]["format"]["rel_l2"] for r in timed
        if r["rho"] is not None and r["pool_k"] == r["pool_v"]}
of_workload = [cost["plain-decode-2x128", name] for name in ("f32", "f16", "q4_0")]
assert of_workload == sorted(set(of_workload)), of_workload
assert {c for (_, name), c in cost.items() if name == "f32"} == {0}
PY

# ---- judged alone: the product, one at a time and several at once; pairs of it
check=("$KVBENCH" run --suite quick --workload plain-decode --workload 'plain-decode-2*' --workload agent-fork --pool f32 --pool int8 --pool nvfp4
    --set oracle-pairs="$ORACLE_PAIRS" --check)
for cache in slab contiguous seq tree; do check+=(--cache "$cache"); done
ok "--check judges without timing" "${check[@]}" --product --jobs 1 -o "$TMPDIR/one.jsonl"
holds "  and says so" '^nothing was timed \(--check\)'
ok "  which show tells of the file" "$KVBENCH" show "$TMPDIR/one.jsonl"
holds "  too" '^nothing was timed \(--check\)'
ok "--check, three at once" "${check[@]}" --product --jobs 3 -o "$TMPDIR/three.jsonl"
ok "  the same records in the same order, to the byte" cmp <(tail -n +2 "$TMPDIR/one.jsonl") <(tail -n +2 "$TMPDIR/three.jsonl")
ok "--check of pairs" "${check[@]}" --set pairs -o "$TMPDIR/pairs.jsonl"
left_out=$(grep -oE '[0-9]+ more combinations could run' "$out" | cut -d' ' -f1)
ok "  every pair that passes in the product is among fewer than half" python3 - "$TMPDIR/one.jsonl" "$TMPDIR/pairs.jsonl" "${left_out:-0}" <<'PY'
import itertools, json, re, sys
whole, pairs = ([json.loads(line) for line in open(f)][1:] for f in sys.argv[1:3])
def parts(r):
    history, shape, values = re.fullmatch("(.*?)(-[1-9][0-9]*x[0-9x]+)?(@.*)?", r["workload"]).groups("")
    return ("history", history + values), ("shape", shape), ("pool", r["pool_k"], r["pool_v"]), ("cache", r["cache"]), ("kernel", r["kernel"])
def met(records): return {p for r in records if r["status"] == "pass" for p in itertools.combinations(parts(r), 2)}
ran = [sum(r["status"] == "pass" for r in records) for records in (whole, pairs)]
assert met(pairs) == met(whole), met(whole) - met(pairs)
assert 2 * ran[1] < ran[0] == ran[1] + int(sys.argv[3]), (ran, sys.argv[3])
assert {parts(r) for r in whole} >= {parts(r) for r in pairs if r["status"] == "pass"} # each with a setting of its own
for r in whole:
    if r["status"] == "pass":
        assert r["time"]["median"] is None and r["time"]["passes"] == r["time"]["samples"] == 0
        assert r["traffic"]["gb_per_s"] is None and r["memory"]["resident_peak"] is None
        assert {"unavailable", "multiplexed"} >= set(r["counters"]) and r["memory"]["allocator_peak"] > 0
# the same trace over every cache reads the same unique bytes where nothing is fed again
byte = {r["cache"]: r["traffic"]["bytes_read"] for r in whole
        if (r["workload"], r["pool_k"], r["kernel"]) == ("plain-decode", "f32", "reference")}
assert byte["contiguous"] == byte["seq"] == byte["tree"] == byte["slab"]
PY
expect_exit 2 "--pairs and --product" "$KVBENCH" run --set pairs --product
one_line "  in one line"
expect_exit 2 "--jobs without --check" "$KVBENCH" run --suite quick --jobs 2
holds "  since timed combinations run alone" '--jobs needs --check' "$err"
expect_exit 0 "parts named without a suite: the product" "$KVBENCH" run --workload plain-decode --cache seq --pool f16 --pool f32 --check
lacks "  of which nothing is left out" 'every pair'

expect_exit 3 "nothing ran: 3" "$KVBENCH" run --workload eagle-tree --cache contiguous
holds "  with the reason" '^ +[0-9]+  the cache cannot do propose and commit'
expect_exit 0 "something else ran: 0" "$KVBENCH" run --workload eagle-tree --cache contiguous --cache tree --pool f16
holds "  and the skip is still counted" '^ +[0-9]+  the cache cannot do propose and commit'
expect_exit 0 "with --all" "$KVBENCH" run --workload eagle-tree --cache contiguous --cache tree --pool f16 --kernel reference --all
holds "  the skip is a row" '^eagle-tree +contiguous .* skip .*cache contiguous cannot do propose and commit'

ok "K and V pools apart, two threads or one, another profile" "$KVBENCH" run --workload plain-decode --cache seq \
    --pool k=f16,v=f32 --values qwen --kernel reference --threads 1 --format csv -o "$TMPDIR/whole.jsonl"
holds "  all named" 'plain-decode@qwen,seq,.*k=f16.v=f32.*,reference,1,pass'
ok "  every row checked where the oracle has the time" python3 - "$TMPDIR/whole.jsonl" <<'PY'
import json, sys
error = json.loads(open(sys.argv[1]).readlines()[1])["error"]
assert 0 < error["checked_rows"] == error["total_rows"], error
PY
# ---- thousands of sequences: all ids in one step, of which some are forks of others, some leave, and one alone goes on
ok "traces of 4096 sequences, and of 512 with ids up to 4095" python3 - "$TMPDIR/many.jsonl" "$TMPDIR/fewer.jsonl" <<'PY'
import json, random, sys
group = {"layers": [0], "heads": 2, "kv_heads": 1, "k_dim": 16, "v_dim": 16}
header = {"kvbench_trace": 2, "name": "many", "source": "test", "values": {"profile": "llama", "seed": 1},
          "model": {"kv_cache.schema_version": 2, "kv_cache.layers": 2, "groups": [group, group | {"layers": [1], "window": 2}]}}
def trace(ids):
    lines = [header]
    length = {}
    def step(ids):
        lines.append({"step": {"pos": [length.get(s, 0) for s in ids], "seq": ids}})
        for s in ids:
            length[s] = length.get(s, 0) + 1
    random.Random(1).shuffle(ids)
    step(ids[:-96])
    for s in ids[-96:]:
        lines.append({"seq_cp": {"src": ids[0], "dst": s}})
        length[s] = length[ids[0]]
    for _ in range(2): # then the window has passed over tokens of every sequence
        step(ids)
    for s in ids[::9]:
        lines.append({"seq_rm": {"seq": s}})
        del length[s]
    step([s for s in ids if s in length])
    last = 4095 if 4095 in length else ids[1]
    lines.append({"seq_keep": {"seq": last}})
    step([last])
    return lines
for path, ids in (sys.argv[1], range(4096)), (sys.argv[2], range(7, 4096, 8)):
    open(path, "w").writelines(json.dumps(line) + "\n" for line in trace(list(ids)))
PY
ok "  over every cache of sequences" "$KVBENCH" run --check --workload "$TMPDIR/many.jsonl" --cache slab --cache seq --cache window \
    --pool f32 --kernel flash -o "$TMPDIR/many-results.jsonl"
holds "  passes" '^6 passed, 0 failed'
ok "  and fewer over none" "$KVBENCH" run --check --workload "$TMPDIR/fewer.jsonl" --cache recompute --pool f32 --kernel flash --set no-witness
holds "  passes" '^1 passed, 0 failed'

ok "a run over a result file can be shown" "$KVBENCH" show "$q"
holds "  with the machine" '^machine '
ok "--help teaches" "$KVBENCH" run --help
holds "  every option" '--set KEY'
ok "the program's own help" "$KVBENCH" --help
for format in md csv json; do
    ok "--format $format" "$KVBENCH" list --format "$format"
done
"$KVBENCH" list --format json >"$TMPDIR/list.json"
ok "json is json" python3 -m json.tool "$TMPDIR/list.json"
done_testing
