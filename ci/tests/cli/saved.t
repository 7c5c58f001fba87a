#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: a recorded history in which the whole cache is saved and loaded after every event gives the same bits as the history alone,
# over every cache, with pools whose rows hang together, too; slots are judged as they are read; a run leaves no file behind, be its
# child killed; --help and a trace's errors say what there is.
. "$(dirname "$0")/lib.sh"
recorded=${KVB_WORKLOADS:-workloads/recorded}

# The history alone, and with saves and loads after each event, but while nodes are pending. What has no recorded tensors gets by
# with a quarter of its heads.
cat >"$TMPDIR/everywhere.py" <<'PY'
import json, sys
pending, n = False, 0
alone = open(sys.argv[2], "w")
for i, line in enumerate(open(sys.argv[1])):
    if i == 0 and "seeded values" in line:
        line = line.replace('heads":32', 'heads":8').replace('kv_heads":8,', 'kv_heads":2,')
    alone.write(line)
    print(line, end="")
    kind = None if i == 0 else next(iter(json.loads(line)))
    pending = kind == "propose" or (pending and kind not in ("commit", "clear"))
    if i and not pending:
        print(json.dumps({"save": {"slot": n % 3}}))
        print(json.dumps({"load": {"slot": n % 3}}))
        n += 1
PY

# same NAME WORKLOAD POOLS…: whether the run of a workload and that with saves everywhere give the same digests.
mkdir "$TMPDIR/alone" "$TMPDIR/saved" "$TMPDIR/slots"
same() {
    local workload=$1
    shift
    python3 "$TMPDIR/everywhere.py" "$recorded/$workload.jsonl" "$TMPDIR/alone/$workload.jsonl" >"$TMPDIR/saved/$workload.jsonl"
    for folder in alone saved; do
        cp "$recorded/$workload.safetensors" "$TMPDIR/$folder" 2>/dev/null
        env TMPDIR="$TMPDIR/slots" "$KVBENCH" run --check --set oracle-pairs=10000 --set opinion-pairs=10000 \
            --workload "$TMPDIR/$folder/$workload.jsonl" "$@" --kernel flash -o "$TMPDIR/$folder.out" >/dev/null || return 1
    done
    python3 - "$TMPDIR/alone.out" "$TMPDIR/saved.out" <<'PY'
import json, sys
alone, saved = ({(r["cache"], r["pool_k"], r["kernel"]): r for r in [json.loads(l) for l in open(f)][1:]} for f in sys.argv[1:])
assert alone.keys() == saved.keys()
for key, r in alone.items():
    if key[0] == "shared-prefix":
        assert saved[key]["status"] == "skip" and "cannot" in saved[key]["reason"], saved[key]["reason"]
        continue
    assert r["status"] == saved[key]["status"] in ("pass", "skip"), (key, saved[key]["reason"])
    assert r["out_digest"] == saved[key]["out_digest"], key
assert sum(r["out_digest"] is not None for r in alone.values()) >= 2
PY
}
ok "agent-fork, saved after every event" same agent-fork --pool f32 --pool e4m3
ok "sink-window" same sink-window --pool int8
ok "eagle-tree" same eagle-tree --pool f32
ok "rows that hang together" same agent-fork-8x128 --pool kivi2+had --set no-witness
ok "rows that hang together, in the caches that drop rows, and in one that does not" same sink-window-8x128 --pool kivi4 --set no-witness \
    --cache window --cache paged --cache seq
ok "prompts that find what others wrote, saved after every event" same prefix-reuse --pool f32 --pool e4m3 --cache paged
ok "  each is judged where it finds what was written since" "$KVBENCH" run --check --workload "$TMPDIR/saved/prefix-reuse.jsonl" --pool f32 \
    --cache paged-prefix --kernel flash --kernel witness
holds "  " '^2 passed, 0 failed'
ok "no file is left" rmdir "$TMPDIR/slots"

# A workload by hand. Its last line is the test's.
trace() {
    cat >"$TMPDIR/hand.jsonl" <<'EOF'
{"kvbench_trace":1,"name":"hand","source":"by hand","capacity":12,"model":{"kv_cache.schema_version":1,"kv_cache.layers":1,"kv_cache.heads":2,"kv_cache.kv_heads":1,"kv_cache.k_dim":64,"kv_cache.v_dim":64},"values":{"profile":"llama","seed":1}}
{"prefill":{"seq":0,"from":0,"n":8}}
{"save":{"slot":0,"seq":0}}
{"save":{"slot":1}}
{"save":{"slot":63,"seq":4}}
{"step":{"pos":[8],"seq":[0]}}
{"load":{"slot":0,"seq":2}}
{"load":{"slot":63,"seq":5}}
{"step":{"pos":[8],"seq":[2]}}
{"load":{"slot":0,"seq":2},"refused":"EINVAL"}
{"load":{"slot":1,"seq":3},"refused":"EINVAL"}
{"load":{"slot":0},"refused":"EINVAL"}
{"seq_rm":{"seq":0}}
{"seq_rm":{"seq":2}}
{"prefill":{"seq":1,"from":0,"n":6}}
{"load":{"slot":0,"seq":0},"refused":"ENOSPC"}
{"load":{"slot":1}}
{"step":{"pos":[8,9],"seq":[0,0]}}
EOF
    if [ $# -gt 0 ]; then
        printf '%s\n' "$1" >>"$TMPDIR/hand.jsonl"
    fi
}
trace
ok "what is to be refused is" "$KVBENCH" run --check --workload "$TMPDIR/hand.jsonl" --pool f32 --pool q8_0 -o "$TMPDIR/hand.out"
ok "  over seq and recompute" python3 - "$TMPDIR/hand.out" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])][1:]
assert {r["cache"] for r in records if r["status"] == "pass"} == {"recompute", "seq"}, {r["cache"]: r["reason"] for r in records}
assert {r["status"] for r in records} == {"pass", "skip"}
PY
bad() { # NAME LINE PATTERN
    trace "$2"
    expect_exit 2 "$1" "$KVBENCH" run --check --workload "$TMPDIR/hand.jsonl"
    holds "  is said" "hand.jsonl:19: $3" "$err"
}
bad "a slot that was never saved" '{"load":{"slot":7}}' 'load: nothing was saved in slot 7'
bad "all as one sequence" '{"load":{"slot":1,"seq":3}}' 'load: slot 1 holds all sequences'
bad "one sequence as all" '{"load":{"slot":0}}' 'load: slot 0 holds one sequence'
bad "onto a sequence that is alive" '{"load":{"slot":0,"seq":0}}' 'load: sequence 0 is alive'
bad "a slot too many" '{"save":{"slot":64}}' 'save: "slot": 64 is out of range 0 .. 63'
bad "no slot" '{"save":{"seq":0}}' 'save: "slot" is missing'

# A child that crashes, or is killed, leaves what it has saved to its parent.
mkdir "$TMPDIR/killed"
head -n 1 "$TMPDIR/hand.jsonl" >"$TMPDIR/dies.jsonl"
cat >>"$TMPDIR/dies.jsonl" <<'EOF'
{"fill":{"seq":0,"n":8}}
{"save":{"slot":0}}
{"step":{"pos":[8],"seq":[0]}}
EOF
ok "the plug-in of crimes builds" plugin crimes "$TMPDIR/crimes.so"
expect_exit 1 "children that die" env TMPDIR="$TMPDIR/killed" "$KVBENCH" run --check --workload "$TMPDIR/dies.jsonl" --pool f32 \
    --cache seq --plugin "$TMPDIR/crimes.so" --kernel crime-segfault --kernel crime-hang --timeout 1 -o "$TMPDIR/dies.out"
for end in crash timeout; do
    holds "  by $end" "\"status\": *\"$end\".*line 4" "$TMPDIR/dies.out"
done
ok "  leave nothing behind" rmdir "$TMPDIR/killed"
done_testing
