#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: models that scan are run by kernels of both kinds, and the record says which; what has no layer to run is skipped; a scan kernel
# that does what it must not is named in words; recorded values that break scan.h's ranges are bad input.
. "$(dirname "$0")/lib.sh"

run=("$KVBENCH" run --check --pool f32 --cache seq --set no-witness)
f=$TMPDIR/hybrids.jsonl
ok "kernels of both kinds run hybrids" "${run[@]}" --workload hybrid-batch --workload state-fork --workload plain-decode \
    --kernel flash --kernel scan -o "$f"
ok "  each beside the other, and none without a layer to run" python3 - "$f" <<'PY'
import json, sys
r = {(r["workload"], r["kernel"]): r for r in [json.loads(line) for line in open(sys.argv[1])][1:]}
assert r["hybrid-batch", "flash"]["beside"] == "scan" and r["hybrid-batch", "scan"]["beside"] == "flash"
assert "beside" not in r["state-fork", "scan"] and "beside" not in r["plain-decode", "flash"]
assert r["state-fork", "flash"]["reason"] == "no layer attends, all scan: there is nothing for kernel flash to run"
assert r["plain-decode", "scan"]["reason"] == "no layer scans: there is nothing for scan kernel scan to run"
for key in [("hybrid-batch", "flash"), ("hybrid-batch", "scan"), ("state-fork", "scan"), ("plain-decode", "flash")]:
    assert r[key]["status"] == "pass" and r[key]["traffic"]["bytes_read"] > 0, key
# a layer's states, each read and written: 4 bytes of 8 x 64, and of 3 x 64 before it; two layers
moved = r["state-fork", "scan"]["traffic"]["bytes_read"]
assert moved % (4 * 64 * (8 + 3) * 2) == 0, moved
PY
ok "one call is made and judged alone" "${run[@]}" --workload state-fork --kernel scan --only line=3,layer=1
ok "a run of twins holds the ratio of scan and scan-reference" "$KVBENCH" run --workload state-fork-1x16x1280 --cache seq \
    --pool bf16 --kernel scan --kernel scan-reference --set no-witness --set no-machine --set sample-ms=1 --set no-null --set oversubscribe \
    --set oracle-pairs=2000 -o "$f"
cat >"$TMPDIR/younger.jsonl" <<'EOT'
{"kvbench_trace":2,"name":"younger","source":"by hand: of two branches the one with the larger id goes on first; then both are reordered","model":{"kv_cache.schema_version":2,"kv_cache.layers":2,"groups":[{"layers":[0,1],"kind":"scan","scan":{"recurrence":"mamba2","heads":2,"groups":1,"k_dim":8,"v_dim":16}}]},"values":{"profile":"llama","seed":3}}
{"prefill":{"seq":3,"from":0,"n":3}}
{"seq_cp":{"src":3,"dst":5}}
{"step":{"pos":[3,4],"seq":[5,5]}}
{"step":{"pos":[3],"seq":[3]}}
{"step":{"pos":[4,5],"seq":[3,5]}}
{"reorder":{"dst":[3,5],"src":[5,3]}}
{"step":{"pos":[6],"seq":[3]}}
{"step":{"pos":[7,5],"seq":[3,5]}}
EOT
ok "branches go on in any order, over every cache that can fork" "$KVBENCH" run --check --pool f32 --kernel scan \
    --set no-witness --workload "$TMPDIR/younger.jsonl" --cache recompute --cache slab --cache seq --cache paged
holds "  all of them" '^4 passed, 0 failed'
expect_exit 2 "a name that nobody has is answered with both kinds" "${run[@]}" --workload state-fork --kernel scam
holds "  the nearest first" "did you mean .scan.\? known: .*flash, .*scan-reference, scan$" "$err"

so=$TMPDIR/scans.so
ok "a plug-in of scan kernels builds" plugin scans "$so"
expect_exit 1 "a run over it ends with 1" "$KVBENCH" run --plugin "$so" --kernel 'scan-[!rm]*' --kernel 'scan-r[!e]*' \
    --kernel scan-remembers --workload state-fork --cache seq --pool f32 --set no-witness --set no-machine --set sample-ms=1 --set no-null \
    --set oversubscribe -o "$f"
# said NAME STATUS REASON: the record of scan-NAME has this status and a reason that matches.
said() {
    grep "\"scan-$1\"" "$f" | grep -E "\"status\": *\"$2\"" | grep -qE "$3"
    report $? "scan-$1: $2, $3"
}
said right pass '"reason": *null'
said remembers fail 'rho [0-9.e+]+ at line [0-9]+, layer [01], recurrence, token [0-9]+, head 0, channel [0-9]+: got [-0-9.e]+, exact [-0-9.e]+, bound [-0-9.e]+; line [0-9]+: '
said unwritten fail 'line 2: scan-unwritten: scan\(\) left out unwritten at token 0, head 0, channel 3; line 2: '
said input fail 'scan-input: scan\(\) wrote to v'
said overrun crash 'write 0 bytes past the end of out: SIGSEGV.*in the kernel.s scan\(\), line 2, layer 0'
said allocates fail 'scan-allocates: scan\(\) allocated or freed memory 2 times; the first: malloc of 64 bytes'
said error fail 'scan\(\) returned 5: it is to return 0 or a negative errno'
said infinite fail 'channel 32: got inf'
expect_exit 1 "a second pass shows other bits" "$KVBENCH" run --plugin "$so" --kernel scan-moody --workload state-fork --cache seq \
    --pool f32 --set no-witness --set no-machine --set sample-ms=20000 --set no-null --set oversubscribe -o "$f"
said moody fail 'scan\(\) gave other bits than in the first pass'

# A dump of the first failing call; what it holds gives what is exact, and not what came out.
expect_exit 1 "--dump" "${run[@]}" --plugin "$so" --kernel scan-remembers --workload state-fork --dump "$TMPDIR/dump"
if python3 -c 'import numpy' 2>"$err"; then
    ok "  its script shows the worst element" python3 "$TMPDIR/dump/difference.py"
    holds "  of a token" '^token [0-9]+, head 0, channel [0-9]+: got .* rho [0-9.e+]+; [1-9][0-9]* of [0-9]+ elements fail'
    ok "  and it is the whole call" python3 - "$TMPDIR/dump" <<'PY'
import json, sys, numpy as np
call = np.load(sys.argv[1] + "/call.npz")
raw = open(sys.argv[1] + "/call.safetensors", "rb").read()
facts = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
q, k, v, gate, a, out, exact, bound = (call[name].astype(float) for name in ("q", "k", "v", "gate", "a", "out", "exact", "bound"))
assert facts["recurrence"] == "mamba1" and facts["kernel"] == "scan-remembers" and "prefill" in facts["event"], facts
slots = {slot: state.reshape(a.shape[1:]) for slot, state in zip(call["slots"][:, 0], call["states_before"].astype(float))}
state = None
for t, (begin, end) in enumerate(zip(call["from"][:, 0], call["to"][:, 0])):
    state = np.zeros(a.shape[1:]) if begin == -1 else state if begin == -2 else slots[begin]
    state = np.exp(gate[t, 0] * a[0]) * state + np.outer(k[t, 0], gate[t, 0] * v[t, 0])
    assert np.allclose(q[t, 0] @ state, exact[t, 0], rtol=1e-9, atol=1e-9), t
    if end >= 0:
        slots[end] = state
assert (abs(out - exact) > bound).any() and call["states"].shape == call["states_before"].shape
PY
else
    report 0 "what a dump holds # SKIP not installed: python3-numpy"
fi

# Recorded values.
cat >"$TMPDIR/own.jsonl" <<'EOT'
{"kvbench_trace":2,"name":"own","source":"by hand","model":{"kv_cache.schema_version":2,"kv_cache.layers":1,"groups":[{"layers":[0],"kind":"scan","scan":{"recurrence":"delta","heads":2,"groups":1,"k_dim":4,"v_dim":16,"state":"f32"}}]},"values":{"tensors":"own.safetensors"}}
{"prefill":{"seq":0,"from":0,"n":5}}
EOT
# tensors GATE BETA KDIM: own.safetensors, with these in token 3
tensors() { python3 - "$TMPDIR/own.safetensors" "$@" <<'PY'
import json, struct, sys
path, gate, beta, k_dim = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
shapes = {"q.0": (5, 1, k_dim), "k.0": (5, 1, k_dim), "v.0": (5, 2, 16), "gate.0": (5, 2, 1), "beta.0": (5, 2, 1)}
header, data = {}, b""
for name, (n, heads, dim) in shapes.items():
    rows = [{"q": 0.5, "k": 0.5, "v": 1.0, "gate": -0.1, "beta": 0.5}[name.split(".")[0]]] * (n * heads * dim)
    if name == "gate.0": rows[7] = gate
    if name == "beta.0": rows[7] = beta
    bytes = struct.pack(f"<{len(rows)}f", *rows)
    header[name] = {"dtype": "F32", "shape": [n, heads, dim], "data_offsets": [len(data), len(data) + len(bytes)]}
    data += bytes
text = json.dumps(header).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
}
own=("${run[@]}" --workload "$TMPDIR/own.jsonl" --kernel scan-reference)
tensors -0.1 0.5 4
ok "recorded values of the delta rule run" "${own[@]}"
bad() { # NAME GATE BETA KDIM REASON
    tensors "$2" "$3" "$4"
    expect_exit 2 "$1" "${own[@]}"
    one_line "  in one line"
    holds "  saying: $5" "$5" "$err"
}
bad "a decay above 1" 0.1 0.5 4 'own.safetensors: gate.0: token 3, number 1: 0.1: expected 0 at most, as no decay is above 1'
bad "a beta above 2" -0.1 2.5 4 'own.safetensors: beta.0: token 3, number 1: 2.5: expected 0 .. 2'
bad "a gate that is no number" nan 0.5 4 'gate.0'
bad "a state of other dims than the tensors" -0.1 0.5 8 'own.safetensors.*q.0.*expected'
done_testing
