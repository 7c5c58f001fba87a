#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: where pairs are chosen and nothing is timed, combinations get settings of their own: every axis' values meet a kernel and a
# cache; records and replay commands name them, typed options win, shards and a resumed run have the same, a timed run has none and no pair is timed; and a
# kernel that is wrong beyond the usual values of an axis fails.
. "$(dirname "$0")/lib.sh"

unpaged=("$KVBENCH" run --set=pairs --workload agent-fork --workload window-edge --workload beam-search --workload eagle-tree
    --cache seq --cache recompute --pool f32 --pool f16 --pool bf16 --set no-witness --set no-machine --set oracle-pairs="$ORACLE_PAIRS")
run=("${unpaged[@]}" --cache paged)
a=$TMPDIR/a.jsonl
records() { python3 -c 'import json, sys
for line in list(open(sys.argv[1]))[1:]:
    r = json.loads(line)
    print(r["workload"], r["cache"], r["pool_k"], r["kernel"], r["threads"], r["out"], r.get("setting"), r["status"], r["rho"], r["out_digest"])' "$1"; }

ok "pairs, judged" "${run[@]}" --check -o "$a"
ok "  each axis' values occur, each axis with each kernel, page sizes in caches of pages alone" python3 - "$a" "$(nproc)" <<'PY'
import json, re, sys
records = [json.loads(line) for line in list(open(sys.argv[1]))[1:]]
records = [r for r in records if r["status"] != "skip"] # flash-int8 reads none of these pools
assert records and all(r["status"] == "pass" for r in records)
settings = [(r["kernel"], r["cache"], r.get("setting", "")) for r in records]
one = r"(--set (page-cells|min-chunk|hash-bits|prefix-bytes|softcap|scale)=[\d.]+|--set growth=(exact|reserve)|--set (sinks|before-rope|restart)|--deterministic|--values (gaussian|qwen|peaked))"
for kernel, cache, setting in settings: # no text is cut short
    assert re.fullmatch(f"({one}( {one})*)?", setting), setting
everywhere = " ".join(s for k, c, s in settings)
for words in "softcap=30", "--set sinks", "scale=1", "scale=0.05", "--values qwen", "--values gaussian", "min-chunk=8", "growth=exact", "growth=reserve", "--set restart", "--deterministic":
    assert words in everywhere, words
for kernel in {r["kernel"] for r in records}:
    mine = " ".join(s for k, c, s in settings if k == kernel)
    for words in "softcap=30", "--set sinks", "scale=", "--values", "min-chunk=8", "growth=", "--set restart", "--deterministic":
        assert words in mine, (kernel, words)
    assert {"f16", "bf16"} <= {r["out"] for r in records if r["kernel"] == kernel}, kernel
assert {c for k, c, s in settings if "page-cells=" in s} == {"paged"}
for page in "3", "48", "256":
    assert any("page-cells=" + page in s for k, c, s in settings), page
PY
records "$a" >"$TMPDIR/whole"
for i in 1 2; do
    ok "shard $i of 2" "${run[@]}" --check --shard $i/2 -o "$TMPDIR/s$i.jsonl"
done
ok "  joined" "$KVBENCH" merge "$TMPDIR/s1.jsonl" "$TMPDIR/s2.jsonl" -o "$TMPDIR/m.jsonl"
records "$TMPDIR/m.jsonl" >"$TMPDIR/merged"
ok "  are the whole" diff "$TMPDIR/whole" "$TMPDIR/merged"
head -n 9 "$a" >"$a.tmp" && rm "$a"
ok "resumed" "${run[@]}" --check --resume -o "$a"
records "$a" >"$TMPDIR/resumed"
ok "  is the whole" diff "$TMPDIR/whole" "$TMPDIR/resumed"

ok "typed options win" "${run[@]}" --check --kernel flash --set page-cells=32 --set out=bf16 --values own --set min-chunk=4 --set softcap=7 -o "$TMPDIR/t.jsonl"
records "$TMPDIR/t.jsonl" >"$TMPDIR/typed"
holds "  and are the same for all" '.' "$TMPDIR/typed"
ok "  on their axes" bash -c '! grep -E -- "set page-cells|--values|set min-chunk|set softcap|set out| f16 (None|-)| f32 (None|-)" "$1"' _ "$TMPDIR/typed"
holds "  beside others" '--set sinks' "$TMPDIR/typed"
ok "pairs of a cache that finds prompts" "$KVBENCH" run --set=pairs --check --workload prefix-reuse --cache paged-prefix --pool f32 --pool f16 --pool bf16 \
    --kernel flash --kernel reference --set no-machine --set oracle-pairs="$ORACLE_PAIRS" -o "$TMPDIR/prompts.jsonl"
records "$TMPDIR/prompts.jsonl" >"$TMPDIR/prompts"
holds "  bring collisions" 'hash-bits=1' "$TMPDIR/prompts"
holds "  and a budget" 'prefix-bytes=60000' "$TMPDIR/prompts"
ok "timed" "$KVBENCH" run --product --workload agent-fork --cache seq --cache paged --pool f16 --kernel flash --set no-machine \
    --set sample-ms=1 --set no-null -o "$TMPDIR/timed.jsonl"
ok "  has none" bash -c '! grep -q "\"setting\"" "$1"' _ "$TMPDIR/timed.jsonl"

# Two combinations that differ in more than one thing are not compared: pairs are judged, then kernels are measured over one table.
cat >"$TMPDIR/tiny.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 128}
END
ok "pairs, and what is fast" "${unpaged[@]}" --kernel flash --model "$TMPDIR/tiny.json" -o "$TMPDIR/both.jsonl"
holds "  say what is right" '^right\?  4 histories, 2 caches, 1 kernel, 3 formats:$'
holds "  then how fast kernels are" '^ +64k +q4_0 '
holds "  over the model's rows" '^1 KV head x 64, 1 query head each, '
holds "  then what a session takes in the caches that are named and can replay it" '^   seq [0-9.]+ MiB$'
holds "  then what to do next" '^next +is my kernel right\? .* check mine.so$'
ok "  with no time of a pair" python3 - "$TMPDIR/both.jsonl" <<'PY'
import json, sys
records = [json.loads(line) for line in list(open(sys.argv[1]))[1:]]
timed = [r for r in records if r["time"]["median"]]
assert len(timed) == 6 and len(records) > 12, (len(timed), len(records))
assert len({(r["cache"], r["kernel"], r["threads"]) for r in timed}) == 1
assert {r["pool_k"] for r in timed} == {"f16", "q8_0", "q4_0"}
PY

# A kernel that takes sink logits and a softcap, and looks at neither: it is right where a run has none.
ok "a kernel without softcap and sinks builds" plugin crimes "$TMPDIR/crimes.so"
wrong=("$KVBENCH" run --plugin "$TMPDIR/crimes.so" --workload agent-fork --workload beam-search --cache seq --cache paged --pool f32
    --kernel crime-none --set no-witness --check)
ok "  passes in the product" "${wrong[@]}" --product
expect_exit 1 "  fails where pairs choose settings" "${wrong[@]}" --set pairs
holds "  which the command of its failure has" '^the first failure alone: .* --set (softcap=30|sinks)( |$)'


# The same kernel, which says so: none of its combinations is skipped for a setting.
sed 's/bool f32 = is_f32/bool f32 = !(p->softcap > 0) \&\& !p->has_sinks \&\& is_f32/' ci/tests/cli/plugins/crimes.c >"$TMPDIR/honest.c"
ok "a kernel that refuses both builds" gcc -std=c11 -O1 -shared -fPIC -fvisibility=hidden -Ikernels "$TMPDIR/honest.c" \
    -o "$TMPDIR/crimes.so" -lm
ok "  passes where pairs choose settings" "${wrong[@]}" --set pairs
holds "  everywhere" '^[1-9][0-9]* passed, 0 failed, 0 crashed, 0 timed out, 0 skipped'

done_testing
