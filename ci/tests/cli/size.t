#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: kvbench size: what papers and engines report, to the byte; mistakes in circulation are not repeated; every
# format; what fits a budget; configs from files, folders and standard input; --verify of what is counted; bad input.
. "$(dirname "$0")/lib.sh"

# value KEY MODEL OPTION…: that key of the only row.
value() {
    local key=$1
    shift
    "$KVBENCH" size "$@" --format json >"$out" 2>"$err" && sed -n "s/.*\"$key\": \([^,}]*\).*/\1/p" "$out"
}
# is NAME WANT KEY MODEL OPTION…
is() {
    local name=$1 want=$2 got
    shift 2
    got=$(value "$@")
    [ "$got" = "$want" ] || echo "# $1 is $got, expected $want"
    [ "$got" = "$want" ]
    report $? "$name"
}

# ---- published, and reported by engines
ideal=(--engine ideal --context 1)
is "DeepSeek-V3: a token" 70272 bytes_per_token DeepSeek-V3 "${ideal[@]}" --kv bf16
is "Llama-3.1-8B" 131072 bytes_per_token Llama-3.1-8B "${ideal[@]}"
is "Llama-3.1-70B" 327680 bytes_per_token Llama-3.1-70B "${ideal[@]}"
is "Llama-3.1-405B" 516096 bytes_per_token Llama-3.1-405B "${ideal[@]}"
is "Gemma-3-27B" 81920 bytes_per_token gemma-3-27b-it "${ideal[@]}"
is "  its windows" 436207616 fixed_bytes_per_sequence gemma-3-27b-it "${ideal[@]}"
is "mamba-2.8b: a sequence" 24903680 state_bytes mamba-2.8b "${ideal[@]}" --kv f32
llama=(--engine llama.cpp --kv f16)
is "Llama-3-8B by llama.cpp" 268435456 kv_bytes Meta-Llama-3-8B "${llama[@]}" --context 2048
is "gemma-7b" 939524096 kv_bytes gemma-7b "${llama[@]}" --context 2048
is "gpt-oss-20b: full layers and windows" $((3221225472 + 18874368)) kv_bytes gpt-oss-20b "${llama[@]}" --context 128k
is "Qwen3.5-9B: states" 52690944 state_bytes Qwen3.5-9B "${llama[@]}" --context 256
buffer=(Llama-3.1-8B "${llama[@]}" --context 4096)
is "a server's compute buffer: gate, up, their product, a mask" $((512 * (4 * (2 * 4096 + 3 * 14336) + 2 * 4096 + 4))) activation_bytes "${buffer[@]}"
is "  llama-bench's: logits of every token" $((512 * 4 * (128256 + 4096))) activation_bytes "${buffer[@]}" --outputs 512
is "  without flash attention: scores of all heads" $((512 * 4 * (4 * 4096 + 33 * 4096 + 1))) activation_bytes "${buffer[@]}" --no-flash
is "  in a pipeline: four masks, and what is handed on" $((512 * 4 * (2 * 4096 + 3 * 14336 + 4 * (2048 + 1 + 4096)))) activation_bytes "${buffer[@]}" --pp 2
logits=(--outputs 512 --budget 24GiB)
is "  of the first of two stages: no logits" $((512 * 4 * (2 * 4096 + 3 * 14336 + 4 * (2048 + 1 + 4096)))) \
    activation_bytes "${buffer[@]}" --split 3,1 "${logits[@]}"
is "  of the last: these are more" $((512 * 4 * (128256 + 4096))) activation_bytes "${buffer[@]}" --split 1,3 "${logits[@]}"
is "  with drafts: as many logits more" $((512 * 4 * (128256 + 4096))) activation_bytes "${buffer[@]}" --spec-depth 511
is "  of an indexer: scores, and a mask of what it chose" $((512 * (4 * (7168 + 2 * 128 * 576) + 32768 * (2 + 2 + 4) + 4))) \
    activation_bytes DeepSeek-V3.2 "${llama[@]}" --context 32k
# llama.cpp 0.5.0 has buffers of 44.16, 126.02 and 72.02 MiB for graphs of these shapes (Vulkan, GGML_VK_DISABLE_GRAPH_OPTIMIZE).
echo '{"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3584,
 "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "num_hidden_layers": 4, "linear_num_key_heads": 16,
 "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"], "linear_num_value_heads": 16,
 "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 1024,
 "max_position_embeddings": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}' >"$TMPDIR/delta.json"
is "  of a gated DeltaNet: its convolution" $((44 * 1048576 + 2048)) activation_bytes "$TMPDIR/delta.json" "${llama[@]}" --context 4096
is "  of its feed-forward block" $((126 * 1048576 + 2048)) activation_bytes Qwen3.5-27B "${llama[@]}" --context 4096
is "  of its experts" $((68 * 1048576 + 2048)) activation_bytes Qwen3.5-35B-A3B "${llama[@]}" --context 4096
is "mamba-2.8b" 24903680 state_bytes mamba-2.8b "${llama[@]}" --context 256

# ---- weights as published, to 1 %
about() { # NAME WANT MODEL OPTION…: weight bytes
    local name=$1 want=$2 got
    shift 2
    got=$(value weight_bytes "$@" --engine ideal --context 1)
    awk -v got="$got" -v want="$want" 'BEGIN { exit !(got > 0.99 * want && got < 1.01 * want) }'
    report $? "$name"
}
about "gpt-oss-120b is published in mxfp4" 65248000000 gpt-oss-120b # 60.8 GiB by its model card
about "Kimi-K2 in fp8" 1029200000000 Kimi-K2-Instruct
about "DeepSeek-V3's index, but for embedding and output, which its layer for multi-token prediction repeats" \
    $((688586727753 - 2 * 2 * 129280 * 7168)) DeepSeek-V3 --mtp
experts=$((60 * 384 * 3 * 7168 * 2048)) # of the 1026408232448 parameters of Kimi-K2: in int4, a scale of 16 bits for 32
about "Kimi-K2-Thinking's experts in int4" $((experts * 9 / 16 + 2 * (1026408232448 - experts))) Kimi-K2-Thinking
about "MiMo-V2-Flash: 309B parameters by its model card" 309000000000 MiMo-V2-Flash --weights e4m3
about "Step-3.5-Flash: a gate for each head" $((2 * 196810000000)) Step-3.5-Flash # 196.81B by its model card
about "gemma-4-26B-A4B, without its tower" $((2 * 25230000000)) gemma-4-26B-A4B
about "Falcon-H1-7B: 7.59B" $((2 * 7590000000)) Falcon-H1-7B-Instruct
about "GLM-4.7, without the layer for multi-token prediction" $((2 * (358337791296 - 3988069792 - 2 * 151552 * 5120))) GLM-4.7
is "whisper-large-v3: encoder and decoder" $((2 * 1543490560)) weight_bytes whisper-large-v3 --engine ideal --context 1
about "q4_K_M as llama.cpp measures it" 4920000000 Llama-3.1-8B --weights q4_K_M
# these files have towers and layers for multi-token prediction besides, which take less than 1 %, or are added here
exact() { # NAME WANT MODEL: parameters
    is "$1" "$2" weight_bytes "$3" --weights fp8 --engine ideal --context 1
}
exact "Kimi-K3: parameters, by public file id 69601732103" 2779484476000 Kimi-K3
about "  its experts in MXFP4" 1560000000000 Kimi-K3
about "DeepSeek-V4-Flash: 284B parameters by its model card" 284000000000 DeepSeek-V4-Flash --weights fp8
one=$((256 * 3 * 4096 * 2048)) # parameters of the experts of the layer for multi-token prediction
about "  its experts in MXFP4, the rest in fp8" $((159600000000 - one * 17 / 32)) DeepSeek-V4-Flash
exact "Phi-4-mini-flash: parameters, by public file id 71142266638" 3852562944 Phi-4-mini-flash-reasoning
about "MiniMax-M3: 428B parameters by its model card" 428000000000 MiniMax-M3 --weights fp8
about "Qwen3.8-Flash-Next: 125B parameters, 102 GB of n-grams" $((2 * 125000000000 + 102400000000)) Qwen3.8-Flash-Next
about "Inkling's files" 1904604285204 Inkling
about "GLM-5-Next's files, without a layer's experts" $(((599 << 30) - 2 * 289 * 3 * 4096 * 2048)) GLM-5-Next
mtp=$((2 * (3 * 5120 * 17408 + 12288 * 5120 + 2 * 1024 * 5120 + 6144 * 5120 + 2 * 5120 * 5120))) vision=920000000
about "Qwen3.6-27B-NVFP4: three formats, 22 GB" $((22000000000 - mtp - vision)) Qwen3.6-27B-NVFP4
echo '{"architectures":["HunYuanDenseV1ForCausalLM"],"model_type":"hunyuan_v1_dense","hidden_size":4096,"num_hidden_layers":32,
"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"max_position_embeddings":4096,"vocab_size":128000}' > "$TMPDIR/hunyuan.json"
ok "weights that are not known" "$KVBENCH" size "$TMPDIR/hunyuan.json" --gpu H100-80GB --context 4k
holds "  mark all that would fit" '^ideal +79\.6 GiB +4096 +\? [0-9.]+ MiB '

ok "weights that are an upper limit" "$KVBENCH" size MiniMax-M2.5 --engine ideal --context 4k --format csv
holds "  say so to programs, too" '"weights: at most: a part of a layer'

# ---- what people type
named() { # WANT WORD…
    local want=$1
    shift
    ok "$*" "$KVBENCH" size "$@"
    holds "  is $want" "^$want"
}
named 'meta-llama/Llama-3\.1-8B: ' Llama-3.1-8B-Instruct
named 'meta-llama/Llama-3\.1-8B: ' https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/tree/main
named 'meta-llama/Llama-3\.1-8B: ' unsloth/Meta-Llama-3.1-8B
named 'meta-llama/Llama-3\.1-8B: .*; H100-80GB has' Llama-3.1-8B --gpu 'NVIDIA H100 80GB HBM3'
named 'meta-llama/Llama-3\.1-8B: .*; RTX-4090 has' Llama-3.1-8B --gpu 'NVIDIA GeForce RTX 4090'
named 'meta-llama/Llama-3\.1-8B: .*; RTX-4090 has' Llama-3.1-8B --gpu rtx4090
named 'meta-llama/Llama-3\.1-8B: .*; H100-80GB has' Llama-3.1-8B --gpu h100_80gb
named 'meta-llama/Llama-3\.1-8B: .*; the budget is 22\.4 GiB' Llama-3.1-8B --budget 24gb
expect_exit 2 "meta-llama/Llama-3.1-8B/" "$KVBENCH" size meta-llama/Llama-3.1-8B/
holds "  is guessed" 'similar: meta-llama/Llama-3\.1-8B,' "$err"
for device in 'AMD Instinct MI325X' MI355X 'NVIDIA B300 SXM6 AC' 'NVIDIA GH200 480GB'; do
    named 'meta-llama/Llama-3\.1-8B: .*; [A-Z0-9-]+ has (9|2)[0-9][0-9.]+ GiB' Llama-3.1-8B --gpu "$device"
done
# What Metal gives of 32 and of 64 GB; vllm and its like do not run there.
named 'meta-llama/Llama-3\.1-8B: .*; Mac-32GB has 21\.3 GiB' Llama-3.1-8B --gpu 'MacBook Pro 32GB'
named 'meta-llama/Llama-3\.1-8B: .*; Mac-64GB has 48\.0 GiB' Llama-3.1-8B --gpu 'Apple M2 Max 64GB'
holds "  by mlx" '^mlx ' && lacks "  not by vllm" '^vllm ' "$out"
for device in 'NVIDIA L40' 'Tesla M40 64GB' 'Mac'; do
    expect_exit 2 "a device of which only a part is known: $device" "$KVBENCH" size Llama-3.1-8B --gpu "$device"
done
expect_exit 2 "llama3" "$KVBENCH" size llama3
holds "  is guessed" 'similar: .*meta-llama/Llama-3\.1-8B' "$err"
expect_exit 2 "a budget of 80" "$KVBENCH" size Llama-3.1-8B --budget 80
holds "  is no memory" '^kvbench size: --budget: 80 is so many bytes: 80GiB \(binary\) or 80GB \(decimal\)\?$' "$err"
for option in --kv --weights; do
    expect_exit 2 "$option int4" "$KVBENCH" size Llama-3.1-8B $option int4
    holds "  lacks its scales" 'int4.: with which scales\?' "$err"
done

# ---- mistakes in circulation
ok "MLA is kept by each layer" "$KVBENCH" size DeepSeek-V3 --explain "${ideal[@]}" --kv bf16
holds "  512 + 64 elements in 61 layers" '^    = 512 \+ 64 elements in bf16: 1,152 B a token and layer$'
holds "  together" '^  together: 70,272 B a token, and 0 B a sequence$'
ok "--explain of an engine" "$KVBENCH" size gemma-3-27b-it Qwen3.5-9B --explain --engine vllm --context 32k --sequences 1 --kv bf16
holds "  says pages and groups" \
    '^    52 x sliding window: 16 tokens x 8,192 B = a page of 131,072 B, 1089 of them a sequence; held as 60 layers'
holds "  and how a state is padded" '^    24 x gated DeltaNet: a state of [0-9,]+ B in a page of [0-9,]+ B, 2 of them a sequence'
is "a state has d_inner, and a convolution beside it" $((64 * 5120 * (16 + 3) * 4)) fixed_bytes_per_sequence mamba-2.8b \
    "${ideal[@]}" --kv f32
is "4 bits have scales: 0.5625 bytes" $((131072 / 2 * 5625 / 10000)) bytes_per_token Llama-3.1-8B "${ideal[@]}" --kv q4_0

# ---- several at once, side by side
several=(Llama-3.1-8B DeepSeek-V3 gemma-3-27b-it mamba-2.8b --context 128k --kv "bf16,q8_0:q4_0" --weights 16GiB
    --sequences 1 --engine "ideal,llama.cpp,vllm")
for format in table csv json; do
    ok "four models as $format" "$KVBENCH" size "${several[@]}" --budget 80GiB --margin 5% --format $format
    golden "  is as it was" size.$format.golden
done
words() { sed -E 's/[|:]*-{3,}[-|:]*//g; s/\|//g' "$1" | tr -s ' ' '\n' | grep .; }
ok "four models as md" "$KVBENCH" size "${several[@]}" --budget 80GiB --margin 5% --format md
ok "  has the words of the table" test "$(words "$out")" = "$(words "$GOLDEN/size.table.golden")"
ok "  json has the keys" python3 -c 'import json, sys
keys = ["model", "engine", "kv", "context", "sequences", "bytes_per_token", "fixed_bytes_per_sequence", "kv_bytes",
        "state_bytes", "weight_bytes", "total_bytes", "max_context", "max_sequences"]
rows = json.load(open(sys.argv[1]))
assert len(rows) == 4 * 2 * 3
for r in rows:
    assert list(r)[:len(keys)] == keys, list(r)
    parts = ("kv_bytes", "state_bytes", "weight_bytes", "activation_bytes", "runtime_bytes", "margin_bytes", "draft_bytes")
    assert r["total_bytes"] is None and r["reason"] or r["total_bytes"] == sum(r[k] for k in parts), r
    assert all(r[k] is None or isinstance(r[k], int) for k in keys[3:]), r' "$GOLDEN/size.json.golden"
ok "what fits a device, for who asks no more" "$KVBENCH" size Llama-3.1-8B DeepSeek-V3 --gpu H100-80GB --kv fp8
golden "  is as it was" size.gpu.golden
widest() { awk '{ if (length($0) > most) most = length($0) } END { print most }' "$1"; }
ok "  within 100 columns" test "$(widest "$out")" -le 100
holds "  weights alone may be too much" '^vllm: the weights alone exceed what it may take by [0-9.]+ GiB\.' "$GOLDEN/size.gpu.golden"
ok "states alone fit at any length, which is found at once" timeout 60 "$KVBENCH" size mamba-2.8b --budget 80GiB
holds "  and are as many whatever it is" '^ +131072  5\.2 GiB  5\.3 GiB  5\.6 GiB  6\.7 GiB      2048$'
ok "a table for each model" "$KVBENCH" size gemma-3-27b-it mamba-2.8b Falcon-H1-7B-Instruct --sequences 1,64 --margin 5% \
    --budget 24GiB --runtime 1GiB
ok "  within 100 columns" test "$(widest "$out")" -le 100
ok "a context beyond the model's" "$KVBENCH" size Meta-Llama-3-8B --context 8K,16K
holds "  is said" '^context 16384 is beyond the 8192 of the model.s config\.$'
ok "  for programs, too" "$KVBENCH" size Meta-Llama-3-8B --engine ideal --context 16k --format csv
holds "  as the reason" 'the context is beyond the model.s own 8192'
ok "a page of a model of whose rows two engines are known" "$KVBENCH" size Qwen3.8-Flash-Next --gpu H200-141GB --format html -o "$TMPDIR/known.html"
holds "  draws these" '>[0-9.]+ GiB: llama\.cpp, bf16<' "$TMPDIR/known.html"
lacks "  and no other" '>[0-9.]+ GiB: (vllm|sglang|trtllm), bf16<' "$TMPDIR/known.html"
ok "a page" "$KVBENCH" size "${several[@]}" --budget 80GiB --format html -o "$TMPDIR/size.html"
ok "  is well-formed" xmllint --html --nofixup-base-uris --noout "$TMPDIR/size.html"
ok "  with a plot for each model" test "$(grep -c '<figure>' "$TMPDIR/size.html")" -eq 4
holds "  a line that covers others is named by all of them" ': ideal, bf16; llama\.cpp, bf16; vllm, bf16</li>' "$TMPDIR/size.html"
lacks "  needs nothing beside itself" '(src|href)=' "$TMPDIR/size.html"
# The page's own sums, in a browser. It has none for engine kvbench, which plays histories and would take most of the time to make a page.
modelled="ideal,llama.cpp,vllm,sglang,trtllm,mlx"
pages=(100 Llama-3.1-8B gemma-3-27b-it Qwen3.5-9B DeepSeek-V3.2 granite-4.0-h-small gpt-oss-20b Phi-3.5-mini-instruct mamba-2.8b
    Llama-4-Scout-17B-16E-Instruct MiMo-V2-Flash MiniMax-M3 gemma-4-26B-A4B gemma-2-9b gemma-3n-E4B DeepSeek-V4-Flash whisper-large-v3
    GLM-5-Next -- --engine "$modelled")
# on a device, with drafts
pages+=(++ 30 Llama-3.1-8B gemma-3-27b-it Qwen3.5-9B gpt-oss-20b NVIDIA-Nemotron-3-Nano-30B-A3B -- --engine "$modelled"
    --gpu H100-80GB --unified --spec-depth 2 --margin 5% --runtime 1GiB --block 32)
# of another version, with whole windows; and with those of its own
pages+=(++ 30 gemma-3-27b-it gpt-oss-20b Qwen3.5-9B Llama-4-Scout-17B-16E-Instruct -- --whole-windows
    --engine "ideal,vllm,vllm@0.24,llama.cpp,sglang")
pages+=(++ 30 gemma-3-27b-it Llama-4-Scout-17B-16E-Instruct Qwen3.5-9B -- --engine "ideal,vllm@0.24,vllm")
# in stages
pages+=(++ 30 Llama-3.1-8B Kimi-Linear-48B-A3B-Instruct DeepSeek-V3 -- --engine "$modelled" --pp 2 --mtp --batch 1024 --state f32)
ok "pages compute what the program does, to the byte" python3 "$(dirname "$0")/../browser/size_page.py" "$KVBENCH" "$TMPDIR/size.png" "${pages[@]}"
holds "  each of them" '^Llama-3\.1-8B Kimi.*: 30 settings, [0-9]+ sizes compared, 0 differ$'

# ---- ranks, drafts, budgets
is "heads are shared" 16384 bytes_per_token Llama-3.1-8B "${ideal[@]}" --tp 8
is "  but not below one on a rank" 16384 bytes_per_token Llama-3.1-8B "${ideal[@]}" --tp 16
is "  and MLA not at all" 70272 bytes_per_token DeepSeek-V3 "${ideal[@]}" --tp 8
is "layers are shared" 65536 bytes_per_token Llama-3.1-8B "${ideal[@]}" --pp 2
is "drafts keep states" $((4 * 24903680)) state_bytes mamba-2.8b "${ideal[@]}" --kv f32 --spec-depth 3
is "a stage of 3 : 1 has three of four layers" $((60 * 4096)) bytes_per_token Llama-3.1-70B "${ideal[@]}" --split 3,1
is "  and on unlike devices the tightest stage limits the whole" 2 stage Llama-3.1-70B "${ideal[@]}" --gpu H200-141GB,L4 --split 3,1
is "  whose layers are split by memory unless said otherwise" 49152 bytes_per_token Llama-3.1-70B "${ideal[@]}" --gpu H200-141GB,L4
alone=$(($(value weight_bytes Llama-3.2-1B-Instruct "${ideal[@]}") + $(value kv_bytes Llama-3.2-1B-Instruct "${ideal[@]}")))
is "a draft model" $alone draft_bytes Llama-3.1-8B "${ideal[@]}" --draft Llama-3.2-1B-Instruct
is "  leaves less to the context" 103424 max_context Llama-3.1-8B --engine llama.cpp --context 1 --gpu L40S --draft Llama-3.2-3B-Instruct
staged=(Llama-3.1-70B "${ideal[@]}" --gpu "H200-141GB,L40S" --split "3,1")
is "  is whole on the last stage of a pipeline" $alone draft_bytes "${staged[@]}" --draft Llama-3.2-1B-Instruct
is "  and not on the others" 0 draft_bytes Llama-3.1-70B "${ideal[@]}" --gpu L40S,H200-141GB --split 1,1 --draft Llama-3.2-1B-Instruct
is "  of equal stages, too" $alone draft_bytes Llama-3.1-70B "${ideal[@]}" --pp 2 --draft Llama-3.2-1B-Instruct
named 'sglang: SGLang serves no draft model in a pipeline' Llama-3.1-70B --pp 2 --draft Llama-3.2-1B-Instruct
is "a budget" 7936 max_context Llama-3.1-8B --engine llama.cpp --context 1 --weights none --budget 1100MiB
is "  in decimal units" 7424 max_context Llama-3.1-8B --engine llama.cpp --context 1 --weights none --budget 1.1GB

# ---- what to change where it does not fit: typing what is suggested makes it fit, and a step further does not
asked=(Llama-3.1-8B --gpu H100-80GB --context 32k --sequences 16)
ok "--suggest" "$KVBENCH" size "${asked[@]}" --suggest
holds "  fewer sequences" '^vllm +32768 +16  --sequences 12 +25\.0 % of the sequences '
holds "  smaller weights" '^trtllm +32768 +16  --weights fp8 +50\.0 % of the weights'
holds "  more stages" '^vllm +32768 +16  --pp 2 +2 times the devices '
holds "  says what fits" '^ideal .* none: it fits '
ok "  within 100 columns" test "$(widest "$out")" -le 100
# suggested WORDS MODEL OPTION…: the total beside that change is what the change makes.
suggested() {
    local words=$1
    shift
    "$KVBENCH" size "$@" --suggest --format csv | awk -F, -v words="$words" '$5 == words {print $(NF - 1), $NF}' >"$TMPDIR/said"
    # shellcheck disable=SC2086
    ok "  $words of ${*:2:4}" test "$(value total_bytes "$@" $words) $(value budget_bytes "$@" $words)" = "$(cat "$TMPDIR/said")"
}
unlike=(Llama-3.1-70B --engine vllm --gpu "H100-80GB,L40S" --context 32k --sequences 16 --split "3,1")
suggested "--tp 4" "${unlike[@]}"
suggested "--tp 2 --kv nvfp4" "${unlike[@]}"
suggested "--weights fp8" Llama-3.1-70B --engine vllm --gpu H100-80GB,L40S --context 8k --sequences 4 --split 2,1
suggested "--pp 8" Llama-3.1-70B --engine vllm --context 32k --sequences 16 --gpu H100-80GB --pp 2 --draft Llama-3.2-1B-Instruct
ok "  for programs" "$KVBENCH" size Llama-3.1-8B Llama-3.1-70B DeepSeek-V3 gemma-3-27b-it --gpu H100-80GB --context 4k,32k,128k \
    --sequences 4,64 --suggest --format csv -o "$TMPDIR/suggest.csv"
ok "  each change fits, and no step further does" python3 -c 'import csv, json, subprocess, sys
kvbench, path = sys.argv[1:]
rows, tried, last = list(csv.DictReader(open(path))), 0, {}
for row in rows[::3] + [r for r in rows if "--context" in r["change"]]:
    if not row["change"].startswith("--"):
        continue
    words = {"--context": row["context"], "--sequences": row["sequences"]}
    change = row["change"].split()
    words.update(zip(change[::2], change[1::2]))
    def total(words):
        line = [kvbench, "size", row["model"], "--gpu", "H100-80GB", "--engine", row["engine"], "--format", "json"]
        got = json.loads(subprocess.run(line + [w for pair in words.items() for w in pair], check=True, capture_output=True, text=True).stdout)[0]
        return got["total_bytes"], got["budget_bytes"]
    took, most = total(words)
    assert took == int(row["total_bytes"]) <= most == int(row["budget_bytes"]), (row, took, most)
    tried += 1
    for key in ("--context", "--sequences"):
        if key in change:
            assert total({**words, key: str(int(words[key]) + 1)})[0] > most, row
assert tried > 20, tried' "$KVBENCH" "$TMPDIR/suggest.csv"
holds "  nothing helps" ',nothing here fits,' "$TMPDIR/suggest.csv"

# ---- what engines logged
logs=ci/tests/harness/logs
ok "the table of what engines logged" results/tables.py sizing --kvbench "$KVBENCH" --work "$TMPDIR/tables" -o "$TMPDIR/sizing.md"
ok "  is as it was (make table-sizing)" cmp "$TMPDIR/sizing.md" results/sizing.md
cat >"$TMPDIR/vllm.log" <<'END'
INFO Initializing a V1 LLM engine (v0.24.1) with config: model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=131072, kv_cache_dtype=auto
INFO Model loading took 14.9575 GiB and 5.1 seconds
INFO Available KV cache memory: 54.92 GiB
INFO Maximum concurrency for 131,072 tokens per request: 3.43x
INFO Graph capturing finished in 20 secs, took 0.54 GiB
END
ok "a log that names its model" "$KVBENCH" size --log "$TMPDIR/vllm.log"
holds "  has its settings" '^meta-llama/Llama-3\.1-8B by vllm@0\.24: context 131072, sequences 1, KV in bf16'
holds "  weights" '^weights +15\.0 GiB +15\.0 GiB +as logged$'
holds "  KV" '^KV +54\.9 GiB +54\.9 GiB +as logged$'
holds "  graphs have no rule" '^graphs +553\.0 MiB +not predicted +no rule$'
ok "  in another format" "$KVBENCH" size --log "$TMPDIR/vllm.log" --kv fp8
holds "  names the rule that differs" '^KV +27\.4 GiB +54\.9 GiB +-50\.0 % +vllm-project/vllm'

cat >"$TMPDIR/sglang.log" <<'END'
[2025-10-07 23:17:19 DP0 TP0] KV Cache is allocated. #tokens: 975424, KV size: 43.67 GB
[2025-10-07 23:17:19 DP0 TP0] Memory pool end. avail mem=37.71 GB
END
ok "latent rows by SGLang, sgl-project/sglang 11309" "$KVBENCH" size DeepSeek-V3.2 --log "$TMPDIR/sglang.log" --kv fp8
holds "  with the indexer's" '^KV +43\.7 GiB +43\.7 GiB +as logged$'

# ---- where models come from
cat >"$TMPDIR/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
 "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
 "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256}
END
is "a file" 131072 bytes_per_token "$TMPDIR/config.json" "${ideal[@]}"
is "a folder" 131072 bytes_per_token "$TMPDIR" "${ideal[@]}"
is "its weights" 16060522496 weight_bytes "$TMPDIR" "${ideal[@]}"
sed 's/"model_type": "llama"/"model_type": "mistral", "sliding_window": 4096, "attention_sink_size": 4/; s/Llama/Mistral/' \
    "$TMPDIR/config.json" >"$TMPDIR/sinks.json"
part='"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16'
echo "{\"model_type\": \"t5gemma\", \"is_encoder_decoder\": true, \"encoder\": {\"max_position_embeddings\": 100},
 \"decoder\": {\"model_type\": \"t5_gemma_module\", \"sliding_window\": 8, \"torch_dtype\": \"bfloat16\", $part}}" >"$TMPDIR/cross.json"
is "rows of an encoder are there from the start" $((2 * 128 * 100 + 128 * 9 + 128 * 8)) kv_bytes "$TMPDIR/cross.json" \
    --engine ideal --context 9
is "four sinks beside a window of 4096 add 0.1 %" $((131072 * 4100)) fixed_bytes_per_sequence "$TMPDIR/sinks.json" "${ideal[@]}"
sed 's/"model_type": "llama"/"model_type": "mistral", "sliding_window": 8192/; s/Llama/Mistral/' \
    "$TMPDIR/config.json" >"$TMPDIR/window.json"
is "a window as long as the model's context limits nothing within it" $((131072 * 8192)) kv_bytes "$TMPDIR/window.json" \
    --engine ideal --context 8k
is "  and counts as growing" 131072 bytes_per_token "$TMPDIR/window.json" "${ideal[@]}"
is "  but limits a longer one" $((131072 * 8192)) kv_bytes "$TMPDIR/window.json" --engine ideal --context 128k
# gguf FILE: a vector of 4096 in f32, 4096 x 14336 in Q4_K, 128 x 32 in MXFP4, behind metadata of every kind.
gguf() {
    python3 -c 'import struct, sys
def string(s): return struct.pack("<Q", len(s)) + s.encode()
values = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
meta = [string(f"k{t}") + struct.pack("<I" + c, t, 1) for t, c in values.items()]
meta.append(string("name") + struct.pack("<I", 8) + string("model"))
meta.append(string("tokens") + struct.pack("<IIQ", 9, 8, 3) + string("a") + string("bc") + string(""))
meta.append(string("scores") + struct.pack("<IIQ3f", 9, 6, 3, 0, 1, 2))
meta.append(string("deep") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ2H", 2, 2, 1, 2))
tensors = [("norm", (4096,), 0), ("down", (4096, 14336), 12), ("experts", (32, 128), 39)]
infos = [string(n) + struct.pack("<I", len(d)) + struct.pack(f"<{len(d)}Q", *d) + struct.pack("<IQ", t, 0) for n, d, t in tensors]
head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(meta))
open(sys.argv[1], "wb").write(head + b"".join(meta + infos))' "$1"
}
gguf "$TMPDIR/model.gguf"
is "weights of a GGUF file" $((4096 * 4 + 4096 * 14336 / 256 * 144 + 4096 / 32 * 17)) weight_bytes Llama-3.1-8B "${ideal[@]}" \
    --weights "$TMPDIR/model.gguf"
echo '{"metadata": {"total_size": 12345}, "weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}}' \
    >"$TMPDIR/x.safetensors.index.json"
is "an index alone" 12345 weight_bytes Llama-3.1-8B "${ideal[@]}" --weights "$TMPDIR/x.safetensors.index.json"
mkdir -p "$TMPDIR/hub"
cp "$TMPDIR/config.json" "$TMPDIR/hub"
cp "$TMPDIR/x.safetensors.index.json" "$TMPDIR/hub/model.safetensors.index.json"
is "an index is a model, too: the config beside it" 131072 bytes_per_token "$TMPDIR/hub/model.safetensors.index.json" "${ideal[@]}"
is "  with the index's weights" 12345 weight_bytes "$TMPDIR/hub/model.safetensors.index.json" "${ideal[@]}"
# A GGUF file is a model: its metadata gives the layers of the built-in one, from which it is written as llama.cpp writes it.
gguf_py=$(dirname "$0")/fixtures/gguf.py
while read -r name architecture; do
    ok "$name as GGUF" python3 "$gguf_py" --as-llama.cpp "$TMPDIR/a.gguf" harness/size/models.jsonl "$name" "$architecture"
    for model in "$TMPDIR/a.gguf" "$name"; do
        "$KVBENCH" size "$model" --engine ideal,llama.cpp --kv f16 --weights none --context 8k --format csv >"$out" 2>"$err"
        cut -d, -f2-9 "$out" >"$TMPDIR/$(basename "$model").csv"
    done
    ok "  has its layers" cmp "$TMPDIR/a.gguf.csv" "$TMPDIR/$(basename "$name").csv"
done <<'END'
meta-llama/Llama-3.1-8B llama
google/gemma-2-9b gemma2
google/gemma-3-27b-it gemma3
google/gemma-3n-E4B gemma3n
google/gemma-4-31B-it gemma4
openai/gpt-oss-20b gpt-oss
Qwen/Qwen3-30B-A3B qwen3moe
Qwen/Qwen3-Next-80B-A3B qwen3next
Qwen/Qwen3.5-9B qwen35
deepseek-ai/DeepSeek-V3 deepseek2
state-spaces/mamba-2.8b mamba
nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B nemotron_h_moe
ibm-granite/granite-4.0-h-small granitehybrid
END
is "  and the file's weights" 16384 weight_bytes "$TMPDIR/a.gguf" "${ideal[@]}"
gguf_refused() { # PATTERN KEY=VALUE…
    local pattern=$1
    shift
    python3 "$gguf_py" "$TMPDIR/bad.gguf" "$@"
    expect_exit 2 "GGUF with $*" "$KVBENCH" size "$TMPDIR/bad.gguf"
    one_line "  says so"
    holds "  and why" "$pattern" "$err"
}
small=(general.architecture=llama llama.block_count=2 llama.embedding_length=64 llama.attention.head_count=4)
gguf_refused 'general\.architecture: "strange" is not known' general.architecture=strange
gguf_refused 'general\.architecture: "" is not known' name=a
gguf_refused 'llama\.block_count: a number of layers' general.architecture=llama llama.block_count=0
gguf_refused 'llama\.attention\.indexer\.head_count: its meaning is not known' "${small[@]}" llama.attention.indexer.head_count=3
gguf_refused 'llama\.attention\.head_count_kv: no architecture here' "${small[@]}" 'llama.attention.head_count_kv=[2,4]'
gguf_refused 'llama\.attention\.value_length: no architecture' "${small[@]}" llama.attention.key_length=16 llama.attention.value_length=8
gguf_refused 'num_attention_heads: missing' general.architecture=llama llama.block_count=2 llama.embedding_length=64
expect_exit 2 "a GGUF file that is not there" "$KVBENCH" size "$TMPDIR/nosuch.gguf"
one_line "  says so"
echo nonsense >"$TMPDIR/x-2.safetensors"
expect_exit 2 "but not beside one of its files" "$KVBENCH" size Llama-3.1-8B --weights "$TMPDIR/x.safetensors.index.json"
one_line "  which says so"
for cut in 3 30 200 400; do
    head -c $cut "$TMPDIR/model.gguf" >"$TMPDIR/cut.gguf"
    expect_exit 2 "a GGUF file of $cut bytes" "$KVBENCH" size Llama-3.1-8B --weights "$TMPDIR/cut.gguf"
    one_line "  says so"
done
ok "standard input, and contexts that the model has" "$KVBENCH" size - --engine ideal --format csv <"$TMPDIR/config.json"
ok "  only" test "$(wc -l <"$out")" -eq 2
ok "the list, into a file" "$KVBENCH" size --list --format csv -o "$TMPDIR/list.csv"
ok "  has all models, with sources" python3 -c 'import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert len(rows) == len(list(open("harness/size/models.jsonl"))) >= 40 and all(r["architecture"] and r["source"] for r in rows)' "$TMPDIR/list.csv"

# ---- counted by the caches, and verified by allocation
ok "--verify" "$KVBENCH" size Llama-3.1-8B DeepSeek-V3 gemma-3-27b-it --verify --kv f16,q8_0 --context 256
holds "  all is as counted" ' 0 differ, '
ok "--verify of published windows, past them" "$KVBENCH" size gemma-3-1b-it gpt-oss-20b --verify --kv f16
holds "  all is as counted" ' 0 differ, '
holds "  window keeps what it must" '^google/gemma-3-1b-it +window .* 0 '
ok "--verify of windows whose rows are K and V at once" "$KVBENCH" size DeepSeek-V4-Flash --verify --kv f16 --context 200
holds "  all is as counted" '^[1-9][0-9]* equal, 0 differ, '
ok "windows by this program's own caches" "$KVBENCH" size gemma-3-27b-it gpt-oss-120b --engine ideal,kvbench --context 128k \
    --sequences 1,8 --format json -o "$TMPDIR/windows.json"
ok "  within 5 % of ideal" python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert len(rows) == 8
for ideal, ours in zip(rows[::2], rows[1::2]):
    assert (ideal["engine"], ours["engine"]) == ("ideal", "kvbench")
    assert ideal["kv_bytes"] <= ours["kv_bytes"] <= 1.05 * ideal["kv_bytes"], (ideal, ours)' "$TMPDIR/windows.json"
ok "more memory than sequences that a cache holds" timeout 60 "$KVBENCH" size mamba-2.8b gpt-oss-20b --engine kvbench,vllm \
    --budget 1TiB --context 4096
holds "  is marked" '^kvbench .* 4096 \(all\)$'
holds "  and said" '^kvbench: \(all\) sequences are the most that it can hold'
lacks "  of no other engine" '^vllm.*\(all\)'
ok "  for programs, too" "$KVBENCH" size mamba-2.8b --engine kvbench --budget 1TiB --context 4096 --format csv
holds "  as the reason" "max_sequences: the engine's own"
ok "tokens that a cache can number are a limit, too" "$KVBENCH" size mamba-2.8b --engine kvbench --budget 8TiB --context 64M \
    --sequences 1 --format csv
holds "  which is a number of sequences" ',4294967295,63,'
is "mamba-2.8b: states of this program" 24903680 state_bytes mamba-2.8b --engine kvbench --context 256
is "Qwen3.5-9B" 52690944 state_bytes Qwen3.5-9B --engine kvbench --context 256
is "  16 bits are half" $((52690944 / 2)) state_bytes Qwen3.5-9B --engine kvbench --context 256 --state bf16
is "  drafts keep states" $((4 * 52690944)) state_bytes Qwen3.5-9B --engine kvbench --context 256 --spec-depth 3
one=$(value state_bytes Qwen3.5-9B --engine vllm@0.26 --context 256 --kv bf16)
is "  vLLM caches prompts' beginnings with them since 0.27" $((2 * one)) state_bytes Qwen3.5-9B --engine vllm@0.27 --context 256 \
    --kv bf16
is "  and before where it is asked to" $((2 * one)) state_bytes Qwen3.5-9B --engine vllm@0.26 --prefix-caching --context 256 \
    --kv bf16
ok "rows of several tokens" "$KVBENCH" size DeepSeek-V4-Flash --engine vllm,sglang --context 32k --format csv
holds "  are not modelled for reasons" 'not modelled: its groups of pages.*51041'
holds "  which engines have of their own" 'not modelled: public versions of its DSV4PoolConfigurator.*name no release'
for model in mamba-2.8b AI21-Jamba-1.5-Mini Qwen3-Next-80B-A3B NVIDIA-Nemotron-3-Nano-30B-A3B granite-4.0-h-small \
    Falcon-H1-7B-Instruct MiniMax-Text-01; do
    ok "$model: states to the byte" "$KVBENCH" size $model --verify --kv f16 --context 40
done
expect_exit 3 "--verify of what kvbench does not hold" "$KVBENCH" size rwkv-5-world-3b --verify --kv f16 --context 256
one_line "  says so"

# ---- bad input: one line, exit 2
change() { # KEY JSON
    python3 -c 'import json, sys
c = json.load(open(sys.argv[1]))
c[sys.argv[2]] = json.loads(sys.argv[3])
json.dump(c, open(sys.argv[4], "w"))' "$TMPDIR/config.json" "$1" "$2" "$TMPDIR/bad.json"
}
refused() { # NAME PATTERN ARGUMENT…
    local name=$1 pattern=$2
    shift 2
    expect_exit 2 "$name" "$KVBENCH" size "$@" </dev/null
    one_line "  in one line"
    holds "  that says why" "$pattern" "$err"
}
echo nonsense >"$TMPDIR/bad.json"
refused "not JSON" 'bad\.json' "$TMPDIR/bad.json"
refused "empty standard input" 'stdin: is empty' -
refused "no such file" 'nosuch\.json: No such file' "$TMPDIR/nosuch.json"
refused "no such model" 'Llama-9' Llama-9
while read -r key json; do
    change "$key" "$json"
    refused "$key = $json" "$key|too big integer" "$TMPDIR/bad.json" --context 1
done <<'END'
num_attention_heads 0
num_key_value_heads -1
num_hidden_layers 18446744073709551616
num_hidden_layers 99999999999
hidden_size null
sliding_window -4096
torch_dtype "float3"
END
while read -r pattern arguments; do
    read -ra words <<<"$arguments"
    refused "$arguments" "$pattern" Llama-3.1-8B "${words[@]}"
done <<'END'
--context --context 0
--context --context 4x
--sequences --sequences -1
--tp --tp 0
unknown.format --kv f12
unknown.format --kv f16,
unknown.engine --engine llm
no.rule.of.sglang --engine sglang@0.5
a.version.like.vllm@0.24 --engine vllm@new
unknown.format --format pdf
--margin --margin 500%
--budget --budget lots
H100-80GB --gpu H100
--gpu --gpu H100-80GB --budget 1GiB
--gpu-memory-utilization --gpu-memory-utilization 0.9
--suggest --suggest
--gpu-memory-utilization --gpu L4 --gpu-memory-utilization 1.1
--budget --budget 99999999999GiB
--runtime --runtime 1.5.5GiB
--weights --weights f12
--state --state int8
64.bits --context 1G --sequences 1024G --engine ideal
--verify --verify --context 1,2
--verify --verify --tp 2
--verify --verify --explain
--verify --verify --gpu L4
--list --list
--pp --pp 33
--split --split 3,0
--split --split 1,1 --gpu L4,L4,L4
--pp --split 1,1 --pp 3
--split --split 1,1 --format html
L5 --gpu L4,L5
Llama-9 --draft Llama-9
--draft --draft Llama-3.2-1B-Instruct --format html
--weights --weights nosuch.safetensors.index.json
END
refused "a log of nothing" 'no size of a log of vllm' Llama-3.1-8B --log "$TMPDIR/config.json"
refused "no log" 'nosuch: No such file' Llama-3.1-8B --log "$TMPDIR/nosuch"
refused "a log of another engine" 'is a log of vllm$' --engine sglang --log "$TMPDIR/vllm.log"
refused "a log, and a budget" '^kvbench size: --log: takes one model' --log "$TMPDIR/vllm.log" --budget 80GiB
refused "a log of two contexts" '^kvbench size: --log: takes one --context' --log "$TMPDIR/vllm.log" --context 1k,2k
refused "a log without a model" 'name a model' --log $logs/vllm-llama-3.1-8b.log
echo 'Available KV cache memory: 3.81 GiB' >"$TMPDIR/short.log"
refused "a log without a context" 'does not say a context' Llama-3.1-8B --log "$TMPDIR/short.log"
expect_exit 2 "nothing is named" "$KVBENCH" size
expect_exit 3 "a file that cannot be written" "$KVBENCH" size Llama-3.1-8B -o "$TMPDIR/none/x"
ok "help" "$KVBENCH" size --help
done_testing
