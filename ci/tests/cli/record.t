#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `kvbench record` writes workloads, saves and loads weights, checks caches, and refuses bad input in one line.
. "$(dirname "$0")/lib.sh"

record() { "$KVBENCH" record "$@"; }
dir=$TMPDIR/recorded

ok "--help" record --help
holds "--help teaches with an example" 'kvbench record --check'

ok "one scenario" record --scenario plain-decode -o "$dir"
holds "its row" '^plain-decode +contiguous +70 +192 '
ok "both files and the seeded variant are there" \
    ls "$dir"/plain-decode.jsonl "$dir"/plain-decode.safetensors "$dir"/plain-decode-8x128.jsonl
ok "no half-done file is left" test -z "$(find "$dir" -name '*tmp*')"

ok "layers with windows" record --scenario sliding-window -o "$dir"
holds "their row" '^sliding-window +window +202 +334 '
holds "their groups" '"groups":\[\{"layers":\[0,1,2,3,4\],.*"window":24,.*\{"layers":\[5\],' "$dir/sliding-window.jsonl"

ok "latent attention" record --scenario mla-decode -o "$dir"
holds "its rows" '"heads":8,"kv_heads":1,"k_dim":40,"v_dim":32,"latent":true' "$dir/mla-decode.jsonl"
holds "those of a real model" '"heads":16,"kv_heads":1,"k_dim":576,"v_dim":512,"latent":true' "$dir/mla-decode-1x576.jsonl"
ok "sink logits" record --scenario gpt-oss-like -o "$dir"
holds "a layer's own" '"layers":\[2\],.*"window":16,.*"sink_logits":\[' "$dir/gpt-oss-like.jsonl"

ok "at a model's shape" record --scenario context-shift --scenario long-decode --model Llama-3.1-8B -o "$dir"
holds "its heads, and what a shift turns" '"heads":32,"kv_heads":8,"k_dim":128,.*"rope":' "$dir/context-shift-Llama-3.1-8B.jsonl"
lacks "no rope where nothing moves" '"rope"' "$dir/long-decode-Llama-3.1-8B.jsonl"
ok "in place of the usual shape" test ! -e "$dir/context-shift-8x128.jsonl"
ok "which can be run" "$KVBENCH" run --check --workload "$dir/context-shift-Llama-3.1-8B.jsonl" --cache seq --pool f16 --kernel flash
holds "under its whole name" '^context-shift-Llama-3\.1-8B +2 '
ok "the synthetic one" record --scenario long-decode -o "$dir"
ok "it is there" test -s "$dir/long-decode.jsonl"

ok "over another cache" record --scenario plain-decode --cache tree -o "$dir/tree"
ok "the trace is the same" cmp "$dir/plain-decode.jsonl" "$dir/tree/plain-decode.jsonl"
ok "the tensors are the same" cmp "$dir/plain-decode.safetensors" "$dir/tree/plain-decode.safetensors"

ok "save weights" record --save-weights "$dir/model.safetensors"
ok "record with them" record --weights "$dir/model.safetensors" --scenario plain-decode -o "$dir/loaded"
ok "the model says the same" cmp "$dir/plain-decode.jsonl" "$dir/loaded/plain-decode.jsonl"
ok "another seed" record --scenario plain-decode --seed 2 -o "$dir/seed2"
ok "says something else" bash -c "! cmp -s $dir/plain-decode.jsonl $dir/seed2/plain-decode.jsonl"

# ci/tests/live/test_recording.c compares the tokens of every scenario over every cache.
ok "--check" record --check --scenario plain-decode --scenario agent-fork --scenario sink-window --scenario beam-search \
    --scenario context-shift --scenario self-extend --scenario evict-rollback
for name in sink-window beam-search context-shift evict-rollback; do
    holds "a cache that drops rows says the same of $name" "^$name +window +[0-9]+ +yes"
done
holds "one that only seq can play is compared with itself, and says so" '^self-extend +seq +87 +yes .*no other'
lacks "what keeps no rows has none to move" '^context-shift +recompute'
lacks "where there are no windows it has no row" '^(plain-decode|agent-fork) +window'
holds "every cache that can do it has a row" '^agent-fork +slab +205 +yes'
holds "recompute too" '^plain-decode +recompute +65 +yes'
lacks "a cache of one sequence has none" '^agent-fork +contiguous'

# refuse STATUS NAME PATTERN ARGUMENT…
refuse() {
    local status=$1 name=$2 pattern=$3
    shift 3
    expect_exit "$status" "$name" record "$@"
    one_line "$name: one line"
    holds "$name: says so" "$pattern" "$err"
}

refuse 2 "no such model" 'no built-in model of this name; similar: meta-llama/Llama-3\.1-8B' --model Llama-3.1-9B -o "$dir"
refuse 2 "a model where nothing is written" '--model shapes what is written' --check --model Llama-3.1-8B
refuse 2 "unknown scenario" "no scenario 'nope'; known: plain-decode, .*long-decode" --scenario nope
refuse 2 "unknown cache" "no cache 'nope'; known: .*contiguous" --cache nope
refuse 2 "unknown kernel" "no kernel 'nope'; known: .*reference" --kernel nope
refuse 2 "witness" "does not compute attention" --kernel witness
refuse 2 "unknown format" "known: table, md, csv, json" --format nope
refuse 2 "what the cache cannot do" "eagle-tree needs propose and commit, which cache contiguous cannot do" \
    --scenario eagle-tree --cache contiguous -o "$dir"
refuse 2 "nothing to check" "--check: contiguous can do none of the scenarios" --check --scenario eagle-tree --cache contiguous
refuse 2 "--config alone" "needs --weights" --config x.json
refuse 2 "missing weights" "$dir/none.safetensors" --weights "$dir/none.safetensors"
refuse 2 "a directory that cannot be" "/dev/null/x" --scenario plain-decode -o /dev/null/x

sed -i 's/"rope_theta"/"rope_scaling": {"factor": 2}, "rope_theta"/' "$dir/config.json"
refuse 2 "unsupported architecture" "rope_scaling" --weights "$dir/model.safetensors"
head -c 1000 "$dir/model.safetensors" >"$dir/short.safetensors"
refuse 2 "truncated weights" "short.safetensors" --weights "$dir/short.safetensors"

# a disk that is full after 64 KiB: one line, and the old files whole
cp "$dir/plain-decode.safetensors" "$TMPDIR/before"
expect_exit 2 "full disk" bash -c "trap '' XFSZ; ulimit -f 64; $KVBENCH record --scenario plain-decode --seed 3 -o $dir"
one_line "full disk: one line"
ok "full disk: the old tensors are whole" cmp "$TMPDIR/before" "$dir/plain-decode.safetensors"
ok "full disk: nothing half-done is left" test -z "$(find "$dir" -name '*tmp*')"

done_testing
