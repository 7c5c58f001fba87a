#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: judge passes what llama.cpp's attention made, as it was recorded and ships; wrong elements, outputs of other tokens and rows
# that the engine never saw are wrong, with their first place in words; bad input is one line. Where llama.cpp is installed (make
# engines), record writes such workloads anew, over every kind of model, and caches replay them.
. "$(dirname "$0")/lib.sh"
shipped=workloads/recorded/engine-windows
judge() { "$KVBENCH" judge "$@"; }

ok "what ships is right" judge $shipped.jsonl
holds "  with its engine and setup" '^RIGHT +engine-windows: worst error 0\.[0-9]+ of its bound; 204 of 204 rows; k=f16 v=f16, llama.cpp v0\.5\.0, seeded model windows-deep, kv f16, flash attention off, layers 0,5 of 6'
ok "show says what made it" "$KVBENCH" show $shipped.jsonl
holds "  in words" '^outputs +of llama.cpp v0\.5\.0, seeded model windows-deep, kv f16, .*; rows as f16, arithmetic ggml-f16'
ok "a record of it" judge $shipped.jsonl -o "$TMPDIR/r.jsonl"
holds "  names workload and arithmetic" '"workload": "engine-windows", "cache": "recorded".*"kernel": "recorded-ggml-f16"' "$TMPDIR/r.jsonl"

# ---- planted: a changed copy NAME.jsonl; the tensors' bytes are changed in Python
ok "changed copies" python3 - $shipped "$TMPDIR" <<'PY'
import json, struct, sys
shipped, folder = sys.argv[1:]
data = open(shipped + ".safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
tensors = json.loads(data[8 : 8 + size])
lines = open(shipped + ".jsonl").read()
def at(name, token, head):  # byte offset and length of a row
    t = tensors[name]
    row = 4 * t["shape"][2]
    return 8 + size + t["data_offsets"][0] + (token * t["shape"][1] + head) * row, row
def save(name, changed, header=lambda text: text):
    open(f"{folder}/{name}.safetensors", "wb").write(changed)
    open(f"{folder}/{name}.jsonl", "w").write(header(lines).replace("engine-windows.safetensors", name + ".safetensors"))
def planted(name, change):
    changed = bytearray(data)
    change(changed)
    save(name, changed)
def element(value):
    def change(d):
        offset = at("out.1", 40, 1)[0] + 4 * 5
        d[offset : offset + 4] = struct.pack("<f", value(struct.unpack("<f", d[offset : offset + 4])[0]))
    return change
def row(name, to, of):
    def change(d):
        (begin, bytes), (source, _) = at(name, to, 0), at(name, of, 0)
        d[begin : begin + bytes] = d[source : source + bytes]
    return change
planted("element", element(lambda x: 1.02 * x + 0.002))
planted("nan", element(lambda x: float("nan")))
planted("neighbour", row("out.0", 38, 37))
planted("unseen", row("k.1", 3, 4))
planted("stale", row("v.0", 39, 38))
save("sharper", data, lambda text: text.replace("ggml-f16", "f32"))
save("wider", data, lambda text: text.replace('"window":32', '"window":33'))
save("kept", data, lambda text: text.replace('"p0":8,"p1":12', '"p0":8,"p1":11'))
save("rows", data, lambda text: text.replace('"rows":"f16"', '"rows":"f17"'))
save("arithmetic", data, lambda text: text.replace("ggml-f16", "ggml-f17"))
save("scans", data, lambda text: text.replace("ggml-f16", "chunk64-f32"))
save("lacking", data.replace(b'"out.1"', b'"our.1"'))
PY
wrong() { # NAME PATTERN
    expect_exit 1 "planted: $1" judge "$TMPDIR/$1.jsonl"
    holds "  leads to: $2" "$2"
}
wrong element 'first +position 38 of sequence 1, layer 1, query 4, head 1, channel 5: got .*; line 4: step of 6 tokens'
wrong nan 'first +position 38 of sequence 1, layer 1, query 4, head 1, channel 5: got nan'
wrong neighbour 'first +position 36 of sequence 1, layer 0, query 2, head 0, channel [0-9]+'
wrong unseen 'first +position 3 of sequence 0, layer 1, query 3, head 0, .*; line 2: prefill of 36 tokens'
wrong stale 'first +position 37 of sequence 1, layer 0, '
wrong sharper '^WRONG'
wrong wider 'first +position 32 of sequence 0, layer 0, query 32, '
wrong kept 'first +position 39 of sequence 0, layer 0, query 0, .*; line 9: step of 2 tokens'
refuse() { # STATUS NAME PATTERN COMMAND…
    expect_exit "$1" "$2" "${@:4}"
    one_line "  in one line"
    holds "  saying: $3" "$3" "$err"
}
refuse 2 "a trace without outputs" 'plain-decode.jsonl: has no outputs; `kvbench record --engine llama` records some' judge workloads/recorded/plain-decode.jsonl
refuse 2 "rows of no format" "rows.jsonl: header: outputs: rows: no format 'f17'" judge "$TMPDIR/rows.jsonl"
refuse 2 "no such arithmetic" "arithmetic.jsonl: header: outputs: arithmetic: 'ggml-f17' is none" judge "$TMPDIR/arithmetic.jsonl"
refuse 2 "arithmetic of scans" "scans.jsonl: header: outputs: arithmetic: chunk64-f32 is for scans only" judge "$TMPDIR/scans.jsonl"
refuse 2 "outputs that are not there" "lacking.safetensors: tensor 'out.1': expected F32 .51, 2, 64., found none" judge "$TMPDIR/lacking.jsonl"
refuse 2 "another reading" 'the header of a trace says all' judge $shipped.jsonl --say arithmetic=f32

# ---- recording
record() { "$KVBENCH" record --engine llama -o "$TMPDIR/made" "$@"; }
refuse 2 "an engine that is not recorded" "no engine 'lama'; did you mean 'llama'" "$KVBENCH" record --engine lama -o "$TMPDIR"
refuse 2 "options of an engine without one" 'need --engine llama' "$KVBENCH" record --kv f16
refuse 2 "nowhere to write" 'needs -o DIR' "$KVBENCH" record --engine llama
refuse 2 "what the live model plays" 'leave out --check, --cache' record --cache paged
refuse 2 "two models" '--family or --model' record --family llama --model x.gguf
refuse 2 "two histories" '--script or one --scenario' record --script 'd 0 1' --scenario plain-decode
refuse 2 "an unknown family" "no family 'lama'; did you mean 'llama'" record --family lama
refuse 2 "an unknown workload" "unknown workload 'plain-decod'; did you mean" record --scenario plain-decod
refuse 2 "rows in blocks" "--kv: unknown word 'q8_0'; known: f16, f32" record --kv q8_0
refuse 2 "positions that move" 'call 2 moves positions, which is not recorded' record --script 'd 0 4; add 0 0 end 2'
refuse 2 "a name that is none" '--name: expected at most' record --name a/b
refuse 3 "no library" 'none: No such file or directory' record --lib "$TMPDIR/none"
echo '#include <stdlib.h>
__attribute__((constructor)) static void dies(void) { abort(); }' | gcc -shared -fPIC -x c - -o "$TMPDIR/libllama.so"
refuse 3 "an engine that dies" 'the engine crashes or ends itself while it is recorded' record --lib "$TMPDIR"
if [ ! -d "$BUILD/engines/ggml" ]; then
    report 0 "recording llama.cpp # SKIP $BUILD/engines/ggml is not there: make engines installs it, with npm"
    done_testing
    exit
fi
library=(--lib "$BUILD/engines/ggml")
refuse 2 "a layer that is none" "--layers: '1': expected up to 16 ascending numbers of layers that attend, of 0 to 0" record "${library[@]}" --layers 1
refuse 2 "a layer that does not attend" "--layers: '0': expected" record "${library[@]}" --family hybrid --layers 0
refuse 2 "a head that is none" "--heads: '0,2': expected up to 64 ascending numbers of KV heads, of 0 to 1" record "${library[@]}" --heads 0,2
printf 'GGUF\3\0\0\0damaged' >"$TMPDIR/damaged.gguf"
refuse 2 "a damaged model" 'the model is not loaded: ' record "${library[@]}" --model "$TMPDIR/damaged.gguf"
# made NAME OPTION…: a recording is right.
made() {
    ok "recorded: $1" record "${library[@]}" --name "$1" "${@:2}"
    ok "  and right" judge "$TMPDIR/made/$1.jsonl"
}
made f32 --kv f32
holds "  judged as f32" 'k=f32 v=f32'
made flash --flash on --family llama-deep --layers 0,2
made latent --family latent
made hybrid --family hybrid
made long --family windows-deep --script 'd 0 50; cp 0 1; d 0 3 1 2; rm 0 48 end; keep 1; d 1 2 2 40; save 1; load 1; d 1 1'
made workload --scenario save-restore
ok "caches replay it" "$KVBENCH" run --workload "$TMPDIR/made/long.jsonl" --check --pool f16 --kernel flash --set no-witness
holds "  rightly" '^[1-9][0-9]* passed, 0 failed'
done_testing
