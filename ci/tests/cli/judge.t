#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: judge passes attention and scans that NumPy computed and fails each of their mistakes with words that lead to it; our kernels
# have the same rho through a file as in process; what is not said is asked for by name; bad input is one line and exit 2.
. "$(dirname "$0")/lib.sh"
calls=$TMPDIR/calls
mkdir "$calls"

if python3 -c 'import numpy' 2>"$err"; then
    ok "calls in NumPy" python3 ci/tests/cli/judge_calls.py "$calls"
    cp "$out" "$TMPDIR/expected"
    while IFS=$'\t' read -r name words; do
        if [ "$words" = right ]; then
            ok "right: $name" "$KVBENCH" judge "$calls/$name.npz"
        else
            expect_exit 1 "wrong: $name" "$KVBENCH" judge "$calls/$name.npz"
            grep -qF -- "$words" "$out"
            report $? "  leads to: $words"
        fi
    done <"$TMPDIR/expected"
    "$KVBENCH" judge "$calls/scale-0.1-percent.npz" >"$out" 2>"$err"
    golden "what is said of a wrong call" judge-wrong.txt sed -E 's/worst +[0-9.e+]+ /worst N /; s/(: )[-0-9.]+, exact [-0-9.]+, bound [-0-9.e]+/\1X, exact Y, bound Z/; s/cosine.*/cosine C/'
    expect_exit 1 "records" "$KVBENCH" judge "$calls/right.npz" "$calls/no-sinks.npz" "$calls/right-delta.npz" "$calls/scan-stale-state.npz" -o "$TMPDIR/r.jsonl" --junit "$TMPDIR/r.xml"
    holds "  a tally" '^4 calls: 2 right, 2 wrong$'
    ok "  which show reads" "$KVBENCH" show "$TMPDIR/r.jsonl"
    holds "  the wrong one in JUnit" '<failure' "$TMPDIR/r.xml"
    expect_exit 1 "  which compare tells apart" "$KVBENCH" compare "$TMPDIR/r.jsonl" <(sed '/right.npz/s/"status": "pass"/"status": "fail"/' "$TMPDIR/r.jsonl")
    say() { "$KVBENCH" judge "$calls/right.npz" "$@"; }
    expect_exit 2 "a key that is none" say --say colour=red
    holds "  says what there is" "unknown key 'colour'; known: recurrence layout causal scale" "$err"
    expect_exit 2 "a value that is none" say --say causal=maybe
    holds "  says what is expected" "causal: 'maybe' is none; expected no; lower-right" "$err"
    expect_exit 2 "axes that the arrays have not" say --say layout=thd
    holds "  names the array" "array 'q' is f32 \[1, 8, 6, 64\]: expected 3 axes, shd" "$err"
    expect_exit 2 "a declaration with a field that is none" say --say 'arithmetic={"dots": 3}'
    holds "  names it" 'dots' "$err"
    one_line "  in one line"
    ok "a declaration of one's own" say --say 'arithmetic={"sums": {"rounding": "bf16"}}'
    expect_exit 1 "  is checked: what would pass anything is refused" say --say 'arithmetic={"sums": {"floor": 0.9}}'
    holds "  so" 'the declared arithmetic is too wide'
    scan() { "$KVBENCH" judge "$calls/right-delta.npz" "$@"; }
    ok "a declaration of a scan of one's own" scan --say 'arithmetic={"chunk": 64, "operands": "bf16", "exp_error": 1e-6}'
    expect_exit 1 "  one that says nothing is refused" scan --say 'arithmetic={"read_chain": 100000}'
    holds "  so" 'read_chain is 100000: expected 0 to'
    expect_exit 2 "  with a field of attention" scan --say 'arithmetic={"sums": {}}'
    holds "  names those of scans" "right-delta.npz: arithmetic: sums: expected of a scan one of carried operands chunk" "$err"
    expect_exit 2 "  with a type that is none" scan --say 'arithmetic={"carried": "f8"}'
    holds "  says which there are" "arithmetic: carried: expected f32, f16, bf16" "$err"
    expect_exit 2 "a preset of attention" scan --say arithmetic=flash-bf16
    holds "  names those of scans" "arithmetic: flash-bf16 is for attention only: expected one of f32 chunk64-f32" "$err"
    expect_exit 2 "a recurrence that is none" scan --say recurrence=s4
    holds "  says which there are" "recurrence: 's4' is none; expected of a scan: mamba1, mamba2" "$err"
    expect_exit 2 "another recurrence's arrays" scan --say recurrence=mamba2
    holds "  names what is missing" "right-delta.npz: no array 'a'; mamba2 has q k v out gate a" "$err"
    expect_exit 2 "a key of attention" scan --say k_scale=2
    holds "  says so" "k_scale, v_scale, window and softcap are for attention only" "$err"
    expect_exit 2 "a layout of attention" scan --say layout=pages
    holds "  says so" "layout pages is for attention only" "$err"
    sed -i 's/, "recurrence": "delta", "state_layout": "kv"//' "$calls/right-delta.json"
    expect_exit 2 "no recurrence" scan
    holds "  is asked for by name" 'recurrence is not said: --say recurrence=VALUE' "$err"
    expect_exit 2 "no order of d_k and d_v, which are equal" scan --say recurrence=delta
    holds "  is asked for by name" "array 'initial_state' .* expected state_layout to be said" "$err"
    rm "$calls/right.json"
    expect_exit 2 "nothing said" "$KVBENCH" judge "$calls/right.npz"
    holds "  asks for the first by name" 'layout is not said: --say layout=VALUE, or "layout" in .*right.json: axes' "$err"
    expect_exit 2 "all but the scale" say --say layout=bhsd --say causal=no --say arithmetic=f32
    holds "  asks for it" 'scale is not said' "$err"
    python3 - "$calls" <<'PY'
import sys, numpy as np
folder = sys.argv[1]
q, k = np.ones((1, 4, 2, 8), np.float32), np.ones((1, 2, 5, 8), np.float32)
def save(name, **more):
    np.savez(f"{folder}/bad-{name}.npz", **{"q": q, "k": k, "v": k, "out": q} | more)
save("heads", q=np.ones((1, 3, 2, 8), np.float32), out=np.ones((1, 3, 2, 8), np.float32))
save("out", out=np.ones((1, 4, 3, 8), np.float32))
save("nan", k=np.full((1, 2, 5, 8), np.nan, np.float32))
save("double", q=np.full((1, 4, 2, 8), 1 / 3))
save("object", v=np.array([None]), allow=1)
save("hidden", mask=np.zeros((2, 5), bool))
save("bias", mask=np.full((2, 5), 0.5, np.float32))
np.savez(f"{folder}/bad-part.npz", q=q)
paged = {"q": np.ones((1, 4, 8), np.float32), "out": np.ones((1, 4, 8), np.float32), "k": np.ones((3, 4, 2, 8), np.float32), "v": np.ones((3, 4, 2, 8), np.float32), "lengths": np.array([6])}
np.savez(f"{folder}/bad-page.npz", block_table=np.array([[1, 3]]), **paged)
np.savez(f"{folder}/bad-length.npz", block_table=np.array([[1]]), **paged)
x, rows = np.ones((2, 3, 4), np.float32), np.ones((2, 3, 2, 4), np.float32)
def scan(name, **more):
    np.savez(f"{folder}/bad-scan-{name}.npz", **{"q": rows, "k": rows, "v": rows, "out": rows, "gate": x[:, :, :2], "a": -x[0, 0, :2]} | more)
scan("gate", gate=-x[:, :, :2])
scan("a", a=x[0, 0, :2])
scan("shape", gate=x)
scan("q", q=x[..., None])
scan("heads", q=np.ones((2, 3, 3, 4), np.float32), k=np.ones((2, 3, 3, 4), np.float32))
scan("state", final_state=np.ones((2, 2, 4, 5), np.float32))
scan("beta", beta=x[:, :, :2])
scan("lengths", lengths=np.array([3, 4]))
scan("nan", v=rows * np.nan)
scan("cu", **{n: y[0] for n, y in {"q": rows, "k": rows, "v": rows, "out": rows, "gate": x[:, :, :2]}.items()}, cu_seqlens=np.array([0, 4]))
np.savez(f"{folder}/bad-taps.npz", x=x, out=x, taps=np.ones((1, 4), np.float32))
np.savez(f"{folder}/bad-act.npz", x=x, out=x, taps=np.ones((3, 4), np.float32))
PY
    bad() { # bad NAME PATTERN [LAYOUT [RECURRENCE]]
        expect_exit 2 "bad input: $1" "$KVBENCH" judge "$calls/bad-$1.npz" --say layout="${3-bhsd}" --say causal=no --say scale=1 --say arithmetic=f32 ${4:+--say recurrence=$4}
        holds "  says where" "bad-$1.npz: $2" "$err"
        one_line "  in one line"
    }
    bad heads "array 'k' is f32 \[1, 2, 5, 8\]: expected a number of heads that divides q's"
    bad out "array 'out' .* expected as many sequences, tokens and heads as q has"
    bad nan "array 'k': sequence 0, head 0, cell 0, channel 0 is nan: expected inputs that are finite"
    bad double "array 'q' is f64 and has more than f32 can hold"
    bad object ".*v"
    bad hidden "no query sees a cell"
    bad bias "array 'mask' .*: expected 0 or -inf"
    bad part "no array 'k'"
    bad page "array 'block_table': sequence 0, entry 1 is page 3: expected one of the 3 of K" pages
    bad length "array 'lengths' .* expected 1 whole numbers from 0 to 4" pages
    bad scan-gate "array 'gate': sequence 0, head 0, token 0, channel 0 is -1: expected 0 at least: Delta, softplus taken" bshd mamba2
    bad scan-a "array 'a': .* is 1: expected 0 at most, so that no decay is above 1" bshd mamba2
    bad scan-shape "array 'gate' is f32 \[2, 3, 4\]: expected floats, as many sequences, tokens and heads as v has" bshd mamba2
    bad scan-q "array 'k' .*: expected as many sequences and tokens as v has, q and k alike" bshd mamba2
    bad scan-heads "array 'k' .* expected a number of heads that divides v's" bshd mamba2
    bad scan-state "array 'final_state' .* expected floats of 2 sequences, 2 heads, 4 rows .d_k. of 4 channels .d_v." bshd mamba2
    bad scan-beta "array 'beta' is none of this recurrence; mamba2 has" bshd mamba2
    bad scan-lengths "array 'lengths' .* expected 2 whole numbers from 0 to 3" bshd mamba2
    bad scan-nan "array 'v': sequence 0, head 0, token 0, channel 0 is nan" bshd mamba2
    bad scan-cu "array 'cu_seqlens' .* ascending to at most 3" thd mamba2
    bad act "activation is not said" bsd conv
    expect_exit 2 "one tap" "$KVBENCH" judge "$calls/bad-taps.npz" --say layout=bsd --say recurrence=conv --say activation=none --say arithmetic=f32
    holds "  is too few" "array 'taps' .* expected at least 2 taps" "$err"
    # A kernel that rounds q to 8 bits: judged by the q that it multiplied.
    python3 - "$calls" <<'PY'
import sys, numpy as np
rng = np.random.default_rng(3)
q, k, v = (rng.standard_normal((1, h, n, 64)).astype(np.float32) for h, n in ((4, 5), (2, 90), (2, 90)))
step = np.abs(q).max(-1, keepdims=True) / 127
rounded = np.rint(q / step) * step.astype(np.float64)
w = np.exp(np.einsum("bhsd,bhtd->bhst", rounded, np.repeat(k, 2, 1)) / 8)
out = ((w / w.sum(-1, keepdims=True)) @ np.repeat(v, 2, 1)).astype(np.float32)
said = {"q": q, "k": k, "v": v, "out": out}
for name, used in (("rounded", rounded), ("rounded-far", 1.1 * rounded), ("bad-rounded", rounded[..., :32])):
    np.savez(f"{sys.argv[1]}/{name}.npz", q_rounded=used, **said)
said["out"] = out * np.float32(1.001)
np.savez(f"{sys.argv[1]}/rounded-wrong.npz", q_rounded=rounded, **said)
np.savez(f"{sys.argv[1]}/rounded-unsaid.npz", **said)
PY
    int8=(--say layout=bhsd --say causal=no --say 'scale=1/sqrt(d)'
        --say 'arithmetic={"dot_chain":64,"cell_chain":90,"rescales":90,"exp_error":1e-7,"exp_floor":1e-38,"query":{"step":0.00787401575}}')
    ok "q that was rounded to 8 bits, as an array" "$KVBENCH" judge "$calls/rounded.npz" "${int8[@]}"
    expect_exit 1 "outputs that are off by a thousandth" "$KVBENCH" judge "$calls/rounded-wrong.npz" "${int8[@]}"
    ok "  which no bound finds that must allow for any rounding of q" "$KVBENCH" judge "$calls/rounded-unsaid.npz" "${int8[@]}"
    expect_exit 1 "one that is further off than was declared" "$KVBENCH" judge "$calls/rounded-far.npz" "${int8[@]}"
    holds "  is wrong" 'why +q_rounded moves q [0-9.]+ times as far as the kernel declares: query 0, head 0'
    bad rounded "array 'q_rounded' .*: expected floats, of the shape of q"
    # More rows than the oracle solves: the others get a second opinion.
    python3 - "$calls" <<'PY'
import sys, numpy as np
rng = np.random.default_rng(1)
q, k, v = (rng.standard_normal((1, h, 1000, 64)).astype(np.float32) for h in (10, 1, 1))
w = np.where(np.tril(np.ones((1000, 1000), bool)), np.exp(np.einsum("bhsd,bgtd->bhst", q, k) / 8), 0)
out = ((w / w.sum(-1, keepdims=True)) @ v).astype(np.float32)
said = {"q": q, "k": k, "v": v, "out": out}
np.savez(f"{sys.argv[1]}/many.npz", **said)
out[0, 3, 801] = out[0, 3, 800]
np.savez(f"{sys.argv[1]}/many-one-wrong.npz", **said)
PY
    many=(--say layout=bhsd --say causal=lower-right --say 'scale=1/sqrt(d)' --say arithmetic=f32 -o "$TMPDIR/many.jsonl")
    ok "a call of many rows" "$KVBENCH" judge "$calls/many.npz" "${many[@]}"
    holds "  each of which is looked at" '7820 of 10000 rows, a second opinion of 2180;'
    expect_exit 1 "a wrong row that is not in the sample" "$KVBENCH" judge "$calls/many-one-wrong.npz" "${many[@]}"
    holds "  is found" 'where +sequence 0; head 3; query 801'
    holds "  by a second opinion" '"reason": "second opinion: out of sequence 0, query 801, head 3' "$TMPDIR/many.jsonl"
    ok "what capture.py wrote" python3 - "$TMPDIR/captured" <<'PY'
import sys, numpy as np
sys.path[:0] = ["workloads/capture", "ci/tests/cli"]
from capture import capture
rng = np.random.default_rng(2)
q, k, v = (rng.standard_normal((1, h, n, 32)).astype(np.float32) for h, n in ((8, 3), (4, 50), (4, 50)))
s = np.einsum("bhsd,bhtd->bhst", q, np.repeat(k, 2, 1)) / np.sqrt(32)
w = np.exp(s - s.max(-1, keepdims=True))
out = (np.einsum("bhst,bhtd->bhsd", w, np.repeat(v, 2, 1)) / w.sum(-1, keepdims=True)).astype(np.float32)
said = {"layout": "bhsd", "causal": "no", "scale": "1/sqrt(d)", "arithmetic": "f32", "q": q, "k": k, "v": v, "out": out}
paths = [capture(sys.argv[1], name="layer0", every=2, calls=2, heads=2, **said) for _ in range(6)]
assert [p is None for p in paths] == [False, True, False, True, True, True], paths
assert capture(sys.argv[1], name="large", megabytes=0.001, **said) is None
assert capture(**said) is None
PY
    ok "  is right" "$KVBENCH" judge "$TMPDIR"/captured/*.safetensors
    holds "  of the heads that were asked for" '4 query heads over 2 KV heads x 32'
    ok "what capture.py wrote of a scan" python3 - "$TMPDIR/scans" <<'PY'
import sys, numpy as np
sys.path[:0] = ["workloads/capture"]
from capture import capture_scan
rng = np.random.default_rng(3)
q, k, v = rng.standard_normal((3, 2, 9, 2, 8)).astype(np.float32) / 2
gate, beta = -rng.random((2, 9, 2), np.float32), rng.random((2, 9, 2), np.float32)
s = begun = rng.standard_normal((2, 2, 8, 8)).astype(np.float32)
out = np.empty_like(v)
for t in range(9):
    s = np.exp(gate[:, t])[..., None, None] * s
    s = s + k[:, t, :, :, None] * (beta[:, t, :, None] * (v[:, t] - np.einsum("bhk,bhkv->bhv", k[:, t], s)))[:, :, None]
    out[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t], s)
said = {"q": q, "k": k, "v": v, "gate": gate, "beta": beta, "out": out, "initial_state": begun, "final_state": s, "layout": "bshd",
        "state_layout": "kv", "scale": 1, "arithmetic": "f32"}
assert [capture_scan(sys.argv[1], "delta", calls=1, **said) is None for _ in range(2)] == [False, True]
PY
    ok "  is right" "$KVBENCH" judge "$TMPDIR"/scans/*.safetensors
    holds "  with its shape" '2 sequences, delta, 2 heads x 8 x 8 over 2 groups, 18 tokens'
else
    report 0 "calls in NumPy # SKIP not installed: python3-numpy"
fi

# torch of Debian, where it is installed: its mathematical path, and the same steps one by one.
if python3 -c 'import torch' 2>"$err"; then
    ok "calls of torch" env OMP_NUM_THREADS=1 python3 - "$TMPDIR/torch" <<'PY'
import sys, torch
sys.path[:0] = ["workloads/capture"]
from capture import capture
torch.manual_seed(1)
sdpa = getattr(torch.nn.functional, "scaled_dot_product_attention", None) or torch.nn.functional._scaled_dot_product_attention
for dtype, arithmetic in ((torch.float32, "f32"), (torch.bfloat16, "math-bf16")):
    q, k, v = (torch.randn(2, 4, n, 64).to(dtype) for n in (7, 333, 333))
    s = (q @ k.transpose(-1, -2)) * 64**-0.5
    steps = torch.softmax(s.masked_fill(~torch.ones(7, 333, dtype=torch.bool).tril(326), float("-inf")), -1) @ v
    whole = sdpa(q, k, v)
    said = {"q": q, "k": k, "v": v, "layout": "bhsd", "scale": "1/sqrt(d)", "arithmetic": arithmetic}
    assert capture(sys.argv[1], name=f"steps-{arithmetic}", out=steps, causal="lower-right", **said)
    assert capture(sys.argv[1], name=f"sdpa-{arithmetic}", out=whole[0] if isinstance(whole, tuple) else whole, causal="no", **said)
PY
    ok "  are right" "$KVBENCH" judge "$TMPDIR"/torch/*.safetensors
    holds "  all of them" '^4 calls: 4 right, 0 wrong'
    expect_exit 1 "  and wrong by another scale" "$KVBENCH" judge "$TMPDIR"/torch/sdpa-f32-0.safetensors --say scale=0.1251
else
    report 0 "calls of torch # SKIP not installed: python3-torch"
fi

rho() { sed -n 's/.*"rho": \([0-9.e-]*\).*/\1/p' "$1" | sort -g | tail -n 1; }
ggml=(--plugin "$BUILD/plugins/ggml.so")
for kernel in flash reference openblas flash-bf16 scan scan-reference ggml-mul ggml; do
    case $kernel in ggml*) [ -d "$BUILD/engines/ggml" ] || { report 0 "calls of $kernel in a file # SKIP make engines plugins installs it" && continue; } ;; esac
    case $kernel in ggml*) plugin=("${ggml[@]}") ;; *) plugin=() ;; esac
    ok "calls of $kernel in a file" "$KVBENCH" judge --make "$TMPDIR/$kernel.safetensors" --by $kernel "${plugin[@]}"
    in_process=$(grep -oE '[0-9.e-]+ of its bound' "$out")
    code=0
    [ $kernel = ggml ] && code=1
    expect_exit $code "  are right" "$KVBENCH" judge "$TMPDIR/$kernel.safetensors" -o "$TMPDIR/hard.jsonl"
    [ $kernel != ggml ] || holds "  but one, for which sums of 513 cells in f16 declare too much" '^19 calls: 18 right, 1 wrong'
    [ "$(printf '%.6g of its bound' "$(rho "$TMPDIR/hard.jsonl")")" = "$in_process" ]
    report $? "  with the rho that they have in process: $in_process"
done
expect_exit 2 "a plug-in without --by" "$KVBENCH" judge --make "$TMPDIR/x.safetensors" "${ggml[@]}"
one_line "  in one line"
expect_exit 2 "a plug-in that is none" "$KVBENCH" judge --make "$TMPDIR/x.safetensors" --by flash --plugin "$TMPDIR/none.so"
one_line "  in one line"
ok "inputs without outputs" "$KVBENCH" judge --make "$TMPDIR/inputs.safetensors"
expect_exit 2 "  are no calls" "$KVBENCH" judge "$TMPDIR/inputs.safetensors" --say arithmetic=f32
holds "  as is said" "no array 'out'" "$err"
for kernel in openblas scan-reference; do
    ok "  outputs of $kernel in a file of their own are judged with them" "$KVBENCH" judge "$TMPDIR/$kernel.safetensors" --inputs "$TMPDIR/inputs.safetensors" --say arithmetic=f32
done
expect_exit 2 "a kernel that is none" "$KVBENCH" judge --make "$TMPDIR/x.safetensors" --by nothing
one_line "  in one line"
expect_exit 2 "no file" "$KVBENCH" judge
expect_exit 2 "a file that is none" "$KVBENCH" judge "$TMPDIR/nothing.npz"
one_line "  in one line"
ok "keys" "$KVBENCH" judge --keys
holds "  with the presets" 'flash-bf16 +weights rounded to bf16'
done_testing
