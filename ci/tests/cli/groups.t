#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: models whose layers are in unlike groups replay on every cache and kernel; the cache that drops what no query can see again
# says the same as the one that masks it; softcap, sink logits and outputs of 16 bits can be asked of any workload, and are judged.
. "$(dirname "$0")/lib.sh"
run=("$KVBENCH" run --check --set oracle-pairs=20000 --format csv)

# Three unlike groups over one sequence, cut back inside the window.
cat >"$TMPDIR/three.jsonl" <<'EOF'
{"kvbench_trace":2,"name":"three","source":"by hand","model":{"kv_cache.schema_version":2,"kv_cache.layers":4,"groups":[{"layers":[0,3],"heads":8,"kv_heads":2,"k_dim":64,"v_dim":64},{"layers":[1],"heads":4,"kv_heads":4,"k_dim":32,"v_dim":32,"window":16,"sinks":2,"sink_logits":[0,0.5,1,-1]},{"layers":[2],"heads":4,"kv_heads":1,"k_dim":96,"v_dim":32,"softcap":30}]},"values":{"profile":"llama","seed":1}}
{"prefill":{"seq":0,"from":0,"n":40}}
{"step":{"pos":[40],"seq":[0]}}
{"step":{"pos":[41],"seq":[0]}}
{"rewind":{"len":38}}
{"step":{"pos":[38],"seq":[0]}}
{"step":{"pos":[39],"seq":[0]}}
{"prefill":{"seq":0,"from":40,"n":30}}
{"step":{"pos":[70],"seq":[0]}}
EOF
ok "three unlike groups, every cache and kernel" "${run[@]}" --workload "$TMPDIR/three.jsonl" --pool f32 --pool f16 --pool q8_0 -o "$TMPDIR/three.out"
ok "  each cache, and the same bits over all of them" python3 - "$TMPDIR/three.out" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])][1:]
assert {r["status"] for r in records} <= {"pass", "skip"}, [r["reason"] for r in records if r["status"] == "fail"]
passed = [r for r in records if r["status"] == "pass" and r["kernel"] == "reference"]
assert {r["cache"] for r in passed} == {"recompute", "slab", "contiguous", "seq", "window", "paged", "paged-prefix", "shared-prefix", "tree"}
for pool in "f32", "f16", "q8_0":
    digests = {r["cache"]: r["out_digest"] for r in passed if r["pool_k"] == pool}
    assert len(set(digests.values())) == 1, (pool, digests)
assert all([g["layers"] for g in r["memory"]["groups"]] == [2, 1, 1] for r in passed)
PY

ok "windows, masked, dropped and in pages" "${run[@]}" --workload sliding-window --workload sink-window --workload gpt-oss-like \
    --workload chunked-local --cache seq --cache window --cache paged --set no-witness --pool f32 --pool k=int8,v=e4m3 --kernel reference --kernel flash \
    -o "$TMPDIR/windows.out"
ok "  cache window holds a quarter of what seq holds, and says the same" python3 - "$TMPDIR/windows.out" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])][1:]
assert {r["status"] for r in records} <= {"pass", "skip"}
by = {(r["workload"], r["cache"], r["pool_k"]): r for r in records if r["status"] == "pass" and r["kernel"] == "reference"}
seen = 0
for (workload, cache, pool), dropped in by.items():
    if cache != "window":
        continue
    masked = by[workload, "seq", pool]
    assert dropped["out_digest"] == masked["out_digest"], (workload, pool)
    # the first group of each is the one with the window
    assert 4 * dropped["memory"]["groups"][0]["cells"] <= masked["memory"]["groups"][0]["cells"], workload
    seen += 1
assert seen == 8, seen
PY

ok "positions move, every cache that can" "${run[@]}" --workload ci/tests/whole/shifts.jsonl --workload context-shift \
    --pool f32 --pool k=f16,v=bf16 --pool e4m3 --kernel reference --kernel flash --kernel witness -o "$TMPDIR/moved.out"
ok "  with windows masked or dropped, the same bits" python3 - "$TMPDIR/moved.out" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])][1:]
assert {r["status"] for r in records} <= {"pass", "skip"}
passed = [r for r in records if r["status"] == "pass"]
assert {(r["workload"], r["cache"]) for r in passed} == {(w, c) for w in ("shifts", "context-shift") for c in ("slab", "seq", "window")}
digest = {(r["workload"], r["cache"], r["pool_k"], r["kernel"]): r["out_digest"] for r in passed if r["kernel"] == "reference"}
for (workload, cache, pool, kernel), bits in digest.items():
    assert cache != "window" or bits == digest[workload, "seq", pool, kernel], (workload, pool, kernel)
assert all("cannot do" in r["reason"] or "witness" in r["reason"] for r in records if r["status"] == "skip"), records
PY

asked() { # what is asked, and what the record says of it
    ok "a run with $*" "${run[@]}" --workload agent-fork --cache seq --pool f16 "$@" -o "$TMPDIR/asked.out"
}
digests() { python3 -c 'import json,sys; print(*sorted({json.loads(l).get("out_digest") or "" for l in list(open(sys.argv[1]))[1:]}))' "$1"; }
asked --kernel reference
plain=$(digests "$TMPDIR/asked.out")
for what in "--out f16" "--out bf16" "--softcap 2" "--sinks"; do
    # shellcheck disable=SC2086 # an option and its value
    asked $what
    ok "  changes what comes out" test "$plain" != "$(digests "$TMPDIR/asked.out")"
done
asked --set out=bf16 --set softcap=2 --set sinks
ok "  and is in the records" python3 - "$TMPDIR/asked.out" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
passed = [r for r in lines[1:] if r["status"] == "pass"]
assert len(passed) >= 3 and all(r["out"] == "bf16" for r in passed)
assert "--set softcap=2 --set sinks" in lines[0]["command"], lines[0]
PY

# Rows spell out token, layer and head, in as many bits as the model needs; a witness that cannot read them is left out.
of_layers() { printf '{"kvbench_trace":2,"name":"layers","source":"by hand","model":{"kv_cache.schema_version":2,"kv_cache.layers":70,"groups":[{"layers":[%s],"heads":2,"kv_heads":1,"k_dim":%d,"v_dim":16}]},"values":{"profile":"flat","seed":1}}\n{"prefill":{"seq":0,"from":0,"n":9}}\n{"step":{"pos":[9],"seq":[0]}}\n' "$(seq -s, 0 69)" "$1"; }
of_layers 16 >"$TMPDIR/layers.jsonl"
ok "a model of 70 layers" "$KVBENCH" run --check --workload "$TMPDIR/layers.jsonl" --cache seq --pool f16 --kernel flash
holds "  is witnessed, too" '^layers +seq +f16 +witness +pass'
of_layers 8 >"$TMPDIR/layers.jsonl"
ok "rows that are too short for a code" "$KVBENCH" run --check --workload "$TMPDIR/layers.jsonl" --cache seq --pool f16 --kernel flash \
    --values peaked --values flat
holds "  are judged" '^1 passed, 0 failed, 0 crashed, 0 timed out, [0-9]+ skipped'
holds "  and not witnessed" '^ +1  profile tags needs k_dim and v_dim of at least 16'
holds "  nor are values made that they do not allow" '^ +1  profile peaked needs a k_dim of at least 16'

refuse() { # description, message, options
    expect_exit 2 "$1" "$KVBENCH" run --workload plain-decode "${@:3}"
    holds "  in one line" "^kvbench run: .*$2" "$err"
}
refuse "an output of 8 bits" "--set out" --set out=e4m3
refuse "a softcap of 0" "--set softcap" --set softcap=0
refuse "a softcap that is no number" "--set softcap" --set softcap=warm
# A model in place of a workload's own.
model() { # NAME FILE OPTION…
    "$KVBENCH" run --check --set oracle-pairs=20000 --model "$1" -o "$2" --pool f16 --kernel flash --set no-witness "${@:3}"
}
ok "a history at a model's shape" model Llama-3.1-8B "$TMPDIR/llama.jsonl" --workload agent-fork --workload plain-decode --cache seq --cache paged
ok "  and at those of its kinds of layers" model google/gemma-3-1b-it "$TMPDIR/gemma.jsonl" --workload plain-decode --cache slab
ok "  rows have the model's size" python3 - "$TMPDIR/llama.jsonl" "$TMPDIR/gemma.jsonl" <<'PY'
import json, sys
llama, gemma = ([r for r in map(json.loads, list(open(path))[1:]) if r["status"] == "pass"] for path in sys.argv[1:])
assert {r["workload"] for r in llama} == {"agent-fork+Llama-3.1-8B", "plain-decode+Llama-3.1-8B"}
assert all(r["traffic"]["bytes_read"] == 2 * 8 * 128 * 2 * r["traffic"]["cells_read"] for r in llama)  # K and V, heads, channels, f16
assert len(gemma) == 1 and len(gemma[0]["memory"]["groups"]) == 2  # all, and a window
PY
ok "  a shift turns its rows" model Llama-3.1-8B "$TMPDIR/shift.jsonl" --workload context-shift --cache seq
holds "  and is judged" '^1 passed, 0 failed'
expect_exit 2 "an unknown model" model Llama-3.1-9B "$TMPDIR/none.jsonl"
holds "  is guessed" '^kvbench run: --model: "Llama-3.1-9B": no built-in model of this name; similar: ' "$err"
done_testing
