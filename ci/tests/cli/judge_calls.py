#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge_calls.py FOLDER: files for `kvbench judge` with attention and scans from NumPy, right ones and some with one mistake each"""
import json
import os
import sys

import numpy as np


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def attend(q, k, v, scale, mask=None, softcap=0, sinks=None, weights=lambda w: w, sums=np.float32):
    """q [h, s, d], k and v [hkv, t, d], mask [s, t] -> out [h, s, d], lse [h, s]; in f32"""
    each = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, each, 0), np.repeat(v, each, 0)
    s = (np.float32(scale) * np.einsum("hsd,htd->hst", q, k)).astype(np.float32)
    if softcap:
        s = (softcap * np.tanh(s / softcap)).astype(np.float32)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    most = s.max(-1, keepdims=True)
    if sinks is not None:
        most = np.maximum(most, sinks[:, None, None])
    w = np.exp(s - most)
    total = w.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - most)
    if sums is np.float16:
        out = np.zeros(q.shape[:2] + v.shape[2:], np.float16)
        for t in range(v.shape[1]):
            out = (out + (w[:, :, t, None] * v[:, t, None, :]).astype(np.float16)).astype(np.float16)
        out = out.astype(np.float32)
    else:
        out = np.einsum("hst,htd->hsd", weights(w), v)
    return (out / total).astype(np.float32), (most + np.log(total))[..., 0].astype(np.float32)


def causal(s, t, window=0, corner="lower-right"):
    i, j = np.arange(s)[:, None] + (t - s if corner == "lower-right" else 0), np.arange(t)[None]
    return (j <= i) & ((j > i - window) if window else True)


folder = sys.argv[1]
rng = np.random.default_rng(1)
HEADS, KV, S, T, D = 8, 2, 6, 150, 64
root = 1 / np.sqrt(D)
expected = {}


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def save(name, arrays, passes, **said):
    """passes: words that the judgement of a wrong call must have; None: the call is right"""
    np.savez(os.path.join(folder, name + ".npz"), **arrays)
    said = {"layout": "bhsd", "causal": "lower-right", "scale": "1/sqrt(d)", "arithmetic": "f32"} | said
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(said, f)
    expected[name] = passes


def call(q, k, v, out, lse=None, **more):
    return {"q": q[None], "k": k[None], "v": v[None], "out": out[None]} | ({} if lse is None else {"lse": lse[None]}) | more


def rounded(x):
    return x.astype(np.float16)


q, k, v = draw(HEADS, S, D), draw(KV, T, D), draw(KV, T, D)
k[:, -1] *= 3  # the last key gets a large weight
see = causal(S, T)
sinks = draw(HEADS)
good = attend(q, k, v, root, see)
save("right", call(q, k, v, *good), None)
save("right-16", call(rounded(q), rounded(k), rounded(v), rounded(attend(*(rounded(x).astype(np.float32) for x in (q, k, v)), root, see)[0])), None)
save("right-bshd", {n: x.swapaxes(1, 2) if n != "lse" else x for n, x in call(q, k, v, *good).items()}, None, layout="bshd")
save("right-sinks", call(q, k, v, *attend(q, k, v, root, see, sinks=sinks), sinks=sinks), None)
save("right-window", call(q, k, v, *attend(q, k, v, root, causal(S, T, 40))), None, window=40)
save("right-softcap", call(q, k, v, *attend(4 * q, k, v, root, see, softcap=5)) | {"q": 4 * q[None]}, None, softcap=5)
save("right-bf16-weights", call(q, k, v, attend(q, k, v, root, see, weights=bf16)[0]), None, arithmetic="flash-bf16")
save("right-mask", call(q, k, v, *attend(q, k, v, root, see), mask=see), None, causal="no")
save("right-base-2", call(q, k, v, good[0], (good[1] / np.log(2)).astype(np.float32)), None, lse_base=2)
save("right-fortran", {n: np.asfortranarray(x) for n, x in call(q, k, v, *good).items()}, None)

save("last-key", call(q[:, -1:], k, v, attend(q[:, -1:], k[:, :-1], v[:, :-1], root)[0]), "the last cell left out")
save("first-key", call(q, k, v, attend(q, k[:, 1:], v[:, 1:], root, causal(S, T - 1))[0]), "the first cell left out")
save("scale-0.1-percent", call(q, k, v, attend(q, k, v, root * 1.001, see)[0]), "0.1 % larger")
save("scale-1", call(q, k, v, attend(q, k, v, 1, see)[0]), "with scale 1")
save("exp2", call(q, k, v, attend(q, k, v, root * np.log(2), see)[0]), "ln(2)")
save("window-by-one", call(q, k, v, attend(q, k, v, root, causal(S, T, 41))[0]), "a window of one cell more", window=40)
save("no-window", call(q, k, v, good[0]), "no window", window=40)
save("no-softcap", call(4 * q, k, v, attend(4 * q, k, v, root, see)[0]), "no softcap", softcap=5)
save("no-sinks", call(q, k, v, good[0], sinks=sinks), "no sinks")
save("lse-without-sink", call(q, k, v, attend(q, k, v, root, see, sinks=sinks)[0], good[1], sinks=sinks), "without the sink")
save("lse-base-2", call(q, k, v, good[0], (good[1] / np.log(2)).astype(np.float32)), "in base 2")
save("wrong-corner", call(q, k, v, attend(q, k, v, root, causal(S, T, 0, "upper-left"))[0]), "upper-left")
save("not-causal", call(q, k, v, attend(q, k, v, root)[0]), "no causal mask")
turned = q.reshape(HEADS // KV, KV, S, D).swapaxes(0, 1).reshape(HEADS, S, D)
out = attend(turned, k, v, root, see)[0].reshape(KV, HEADS // KV, S, D).swapaxes(0, 1).reshape(HEADS, S, D)
save("gqa-heads", call(q, k, v, out), "in turn")
save("f16-sums", call(q, k, v, attend(q, k, v, root, see, sums=np.float16)[0]), "it rounds more")
save("bf16-weights", call(q, k, v, attend(q, k, v, root, see, weights=bf16)[0]), "flash-bf16")
square = draw(1, 8, 8, D), draw(1, 8, 8, D), draw(1, 8, 8, D)
out = np.stack([attend(a, b, c, root, causal(8, 8))[0] for a, b, c in zip(*(x.swapaxes(1, 2) for x in square))]).swapaxes(1, 2)
save("layout", dict(zip(("q", "k", "v", "out"), square + (out,))), "layout bshd")
save("zeros", call(q, k, v, 0 * good[0]), "first   out of sequence 0, query 0, head 0")
one = good[0].copy()
one[3, 2] = one[2, 2]
save("one-head", call(q, k, v, one), "sequence 0; head 3; query 2")
nan = good[0].copy()
nan[1, 1, 1] = np.nan
save("nan", call(q, k, v, nan), "nan")

# Mistakes that are smaller than the rounding of bf16 weights in each element: the matched filter adds them up over rows.
fq, fk, fv = draw(4, 64, 32), draw(2, 8000, 32) / 2, draw(2, 8000, 32)
stale = fv.copy()
stale[:, 1000] *= -1


def long_context(name, k, v, passes):
    save(name, call(fq, fk, fv, attend(fq, k, v, 1 / np.sqrt(32), weights=bf16)[0]), passes, causal="no", arithmetic="flash-bf16")


long_context("right-long", fk, fv, None)
long_context("stale-row", fk, stale, "cell 1000 of those that each query sees is missing from, or has a wrong V row in")
long_context("lost-first-key", fk[:, 1:], fv[:, 1:], "cell 0 of those that each query sees is missing from")

# Pages: three sequences of different lengths.
PAGE, lengths = 16, np.array([40, 90, 33], np.int32)
pages_k, pages_v = draw(24, PAGE, KV, D), draw(24, PAGE, KV, D)
table = rng.permutation(24)[: 3 * 6].reshape(3, 6).astype(np.int32)
decode = draw(3, HEADS, D)


def paged(tables, cells):
    rows = [[x[t].reshape(-1, KV, D)[:n].swapaxes(0, 1) for x in (pages_k, pages_v)] for t, n in zip(tables, cells)]
    return np.stack([attend(a[:, None], *kv, root)[0][:, 0] for a, kv in zip(decode, rows)])


pages = {"q": decode, "k": pages_k, "v": pages_v, "block_table": table, "lengths": lengths}
save("right-pages", pages | {"out": paged(table, lengths)}, None, layout="pages")
save("swapped-table", pages | {"out": paged(np.roll(table, -1, 0), lengths)}, "the next sequence's pages", layout="pages")
save("other-length", pages | {"out": np.stack([paged(table, lengths)[0], paged(table, lengths - 1)[1], paged(table, lengths)[2]])}, "sequence 1;", layout="pages")
save("long-length", pages | {"out": paged(table, np.roll(lengths, -1))}, "the next sequence's length", layout="pages")

# Sequences one behind the other.
cu_q, cu_k = np.array([0, 2, 7], np.int32), np.array([0, 20, 61], np.int32)
tq, tk, tv = draw(7, HEADS, D), draw(61, KV, D), draw(61, KV, D)
out = np.concatenate([attend(*(x.swapaxes(0, 1) for x in (tq[a:b], tk[c:d], tv[c:d])), root, causal(b - a, d - c))[0].swapaxes(0, 1) for a, b, c, d in zip(cu_q, cu_q[1:], cu_k, cu_k[1:])])
joined = {"q": tq, "k": tk, "v": tv, "out": out, "cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k}
save("right-thd", joined, None, layout="thd")

# e4m3 codes as raw bytes (0x38 is 1), with a scale for each head.
codes = rng.integers(0x20, 0x48, (KV, T, D)).astype(np.uint8) | (rng.integers(0, 2, (KV, T, D)) << 7).astype(np.uint8)
value = np.where(codes >> 7, -1, 1) * (1 + (codes & 7) / 8) * 2.0 ** ((codes >> 3 & 15).astype(int) - 7)
factor = np.array([0.37, 1.9], np.float32)
fp8 = (value * factor[:, None, None]).astype(np.float32)
save("right-e4m3", call(q, codes, codes, *attend(q, fp8, fp8, root, see), k_scale=factor, v_scale=factor), None, k_format="e4m3", v_format="e4m3")
save("no-k-scale", call(q, codes, codes, attend(q, value.astype(np.float32), value.astype(np.float32), root, see)[0], k_scale=factor, v_scale=factor), "no k_scale", k_format="e4m3", v_format="e4m3")

# Scans. Arrays are [batch, token, head, channel]; states [batch, head, d_k, d_v].
def scan(kind, q, k, v, gate=None, beta=None, a=None, state=None, wrong=()):
    """mamba2, lightning and delta of kernels/scan.h, token by token in f32 -> out, final state. wrong: names of mistakes"""
    each = v.shape[2] // k.shape[2]
    q, k = np.repeat(q, each, 2), np.repeat(k, each, 2)
    s = np.zeros(v.shape[:1] + v.shape[2:3] + (k.shape[3], v.shape[3]), np.float32) if state is None else state.copy()
    out = np.zeros_like(v)
    exp = {"exp2": np.exp2, "no-exp": lambda x: x, "no-decay": lambda x: np.ones_like(x)}.get(wrong[0] if wrong else "", np.exp)
    for t in range(v.shape[1]):
        at = min(t + 1, v.shape[1] - 1) if "next-gate" in wrong else t
        exponent = {"mamba2": lambda: gate[:, at] * a, "lightning": lambda: np.broadcast_to(a, v.shape[:1] + a.shape), "delta": lambda: gate[:, at]}[kind]()
        s = (exp(exponent).astype(np.float32)[..., None, None] * s).astype(np.float32)
        write = v[:, t]
        if kind == "mamba2" and "plain-write" not in wrong:
            write = gate[:, at, :, None] * write
        if kind == "delta":
            write = write - np.einsum("bhk,bhkv->bhv", k[:, t], s)
            write = write if "no-beta" in wrong else beta[:, t, :, None] * write
        s = (s + k[:, t, :, :, None] * write[:, :, None]).astype(np.float32)
        out[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t], s)
    return out, s


def turned(x):
    return np.ascontiguousarray(x.swapaxes(-1, -2))


B, N, G, H, K, V = 2, 37, 2, 4, 16, 16
sq, sk, sv = draw(B, N, G, K) / 4, draw(B, N, G, K), draw(B, N, H, V)
delta, decay, gates = np.exp(draw(B, N, H)) / 20, -np.exp(draw(H)), -np.exp(draw(B, N, H)) / 10
begun, sk1, beta = draw(B, H, K, V), sk / np.linalg.norm(sk, axis=-1, keepdims=True), (1 / (1 + np.exp(-draw(B, N, H)))).astype(np.float32)
said = {"layout": "bshd", "scale": 1}
mamba2 = {"q": sq, "k": sk, "v": sv, "gate": delta, "a": decay}
rule = {"q": sq, "k": sk1, "v": sv, "gate": gates, "beta": beta}
light = {"q": sq, "k": sk, "v": sv, "a": decay / 8}


def save_scan(name, kind, arrays, passes, state=None, final=True, more=(), states="kv", given=(), **also):
    """Saves a scan. more: mistakes in it; given: inputs that replace the file's in the computation"""
    out, after = scan(kind, **arrays | dict(given), state=state, wrong=more)
    file = arrays | {"out": out} | ({} if state is None else {"initial_state": state}) | ({"final_state": after} if final else {})
    save(name, file | {n: x for n, x in also.pop("arrays", {}).items()}, passes, recurrence=kind, state_layout=states, **said | also)


save_scan("right-mamba2", "mamba2", mamba2, None, begun)
save_scan("right-mamba2-from-zeros", "mamba2", mamba2, None, final=False)
save_scan("right-lightning", "lightning", light, None, begun)
save_scan("right-delta", "delta", rule, None, begun)
save_scan("right-delta-scale", "delta", rule, None, begun, given={"q": (sq / 4).astype(np.float32)}, scale="1/sqrt(d)")
out, after = scan("mamba2", **mamba2, state=begun)
turn = {"initial_state": turned(begun), "final_state": turned(after)}
save("right-states-vk", mamba2 | {"out": out} | turn, None, recurrence="mamba2", state_layout="vk", **said)
save("right-state-16", mamba2 | {"out": out, "initial_state": begun, "final_state": rounded(after)}, None, recurrence="mamba2", state_layout="kv", **said)
save("right-scan-bhsd", {n: x.swapaxes(1, 2) if n != "a" else x for n, x in (mamba2 | {"out": out}).items()} | {"initial_state": begun, "final_state": after}, None,
     recurrence="mamba2", state_layout="kv", layout="bhsd", scale=1)
one = {n: x[:, 0] if n != "a" else x for n, x in (mamba2 | {"out": scan("mamba2", **{n: x[:, :1] if n != "a" else x for n, x in mamba2.items()}, state=begun)[0]}).items()}
save("right-one-token", one | {"initial_state": begun}, None, recurrence="mamba2", state_layout="kv", layout="bhd", scale=1)

save_scan("scan-exp2", "mamba2", mamba2, "ln(2) times the exponents", begun, more=("exp2",))
save_scan("scan-no-exp", "delta", rule, "not exponentiated", begun, more=("no-exp",))
save_scan("mamba2-no-exp", "mamba2", mamba2, "not exponentiated", begun, more=("no-exp",))
save_scan("lightning-no-exp", "lightning", light, "not exponentiated", begun, more=("no-exp",))
save_scan("scan-no-decay", "lightning", light, "no decay", begun, more=("no-decay",))
save_scan("scan-next-gate", "delta", rule, "the gate of the next token", begun, more=("next-gate",))
save_scan("scan-no-beta", "delta", rule, "no beta", begun, more=("no-beta",))
save_scan("scan-plain-write", "mamba2", mamba2, "a write without its gate", begun, more=("plain-write",))
save_scan("scan-q-for-k", "mamba2", mamba2, "q and k in each other's place", begun, given={"q": sk, "k": sq})
save_scan("scan-no-scale", "delta", rule, "with scale 1", begun, scale="1/sqrt(d)")
save_scan("scan-groups", "mamba2", mamba2, "dealt out to groups in turn", begun, given={"q": np.tile(sq, (1, 1, 2, 1)), "k": np.tile(sk, (1, 1, 2, 1))})
save("scan-states-turned", mamba2 | {"out": out} | turn, "d_v before d_k: transposed", recurrence="mamba2", state_layout="kv", **said)
save("scan-no-initial", mamba2 | dict(zip(("out", "final_state"), scan("mamba2", **mamba2))) | {"initial_state": begun}, "no initial state", recurrence="mamba2",
     state_layout="kv", **said)
stale = scan("mamba2", **{n: x[:, :-1] if n != "a" else x for n, x in mamba2.items()}, state=begun)[1]
save("scan-stale-state", mamba2 | {"out": out, "initial_state": begun, "final_state": stale}, "before the last token", recurrence="mamba2", state_layout="kv", **said)
save("scan-bf16-state", mamba2 | {"out": out, "initial_state": begun, "final_state": bf16(after)}, "final_state of sequence 0", recurrence="mamba2", state_layout="kv",
     **said)
nan = out.copy()
nan[1, 5, 2, 3] = np.nan
save("scan-nan", mamba2 | {"out": nan, "initial_state": begun}, "out of sequence 1, token 5, head 2, channel 3", recurrence="mamba2", state_layout="kv", **said)
halves = {n: bf16(x) for n, x in mamba2.items()}
save_scan("scan-bf16-factors", "mamba2", mamba2, "it rounds more", begun, given={"q": bf16(sq), "k": bf16(sk)})

# Padded, and one behind the other: sequences have different lengths.
cells = np.array([30, 21])
parts = [scan("delta", **{n: x[b : b + 1, : cells[b]] for n, x in rule.items()}, state=begun[b : b + 1]) for b in range(B)]
padded = np.zeros_like(sv)
for b in range(B):
    padded[b, : cells[b]] = parts[b][0]
lasts = np.concatenate([p[1] for p in parts])
pads = rule | {"out": padded, "initial_state": begun, "final_state": lasts, "lengths": cells}
save("right-padded", pads, None, recurrence="delta", state_layout="kv", **said)
save("scan-padding", pads | {"final_state": scan("delta", **rule, state=begun)[1]}, "after the padding", recurrence="delta", state_layout="kv", **said)
swapped = np.concatenate([scan("delta", **{n: x[b : b + 1, : cells[1 - b]] for n, x in rule.items()}, state=begun[b : b + 1])[1] for b in range(B)])
save("scan-length", pads | {"final_state": swapped}, "the next sequence's length", recurrence="delta", state_layout="kv", **said)
joined = {n: np.concatenate([x[b, : cells[b]] for b in range(B)]) for n, x in (rule | {"out": padded}).items()}
save("right-scan-thd", joined | {"initial_state": begun, "final_state": lasts, "cu_seqlens": np.array([0, 30, 51])}, None, recurrence="delta", state_layout="kv",
     layout="thd", scale=1)

# One head of channels: Mamba-1, and the convolution before it. States are [batch, channel, d_k], as in mamba_ssm.
C = 24
mx, mdelta, mb, mc, ma = draw(B, C, N), (np.exp(draw(B, C, N)) / 20).astype(np.float32), draw(B, K, N), draw(B, K, N), -np.exp(draw(C, K))
s, y = np.zeros((B, C, K), np.float32), np.zeros((B, C, N), np.float32)
raw, z = np.zeros((B, C, K), np.float32), np.zeros((B, C, N), np.float32)
for t in range(N):
    write = (mdelta[:, :, t] * mx[:, :, t])[..., None] * mb[:, None, :, t]
    s = np.exp(mdelta[:, :, t, None] * ma) * s + write
    raw = mdelta[:, :, t, None] * ma * raw + write
    y[:, :, t], z[:, :, t] = np.einsum("bck,bk->bc", s, mc[:, :, t]), np.einsum("bck,bk->bc", raw, mc[:, :, t])
mamba1 = {"q": mc, "k": mb, "v": mx, "gate": mdelta, "a": ma}
save("right-mamba1", mamba1 | {"out": y, "final_state": s}, None, recurrence="mamba1", layout="bds", scale=1)
save("mamba1-no-exp", mamba1 | {"out": z, "final_state": raw}, "not exponentiated", recurrence="mamba1", layout="bds", scale=1)
taps, offset, before = draw(C, 4), draw(C), draw(B, C, 3)
rows = np.concatenate([before, mx], 2)


def convolve(weights, bias=offset, silu=True):
    y = sum(weights[:, i, None] * rows[:, :, i : i + N] for i in range(4)) + bias[:, None]
    return (y / (1 + np.exp(-y)) if silu else y).astype(np.float32)


conv = {"x": mx, "taps": taps, "bias": offset, "initial_state": before, "final_state": rows[:, :, -3:]}
how = {"recurrence": "conv", "layout": "bds", "activation": "silu"}
save("right-conv", conv | {"out": convolve(taps)}, None, **how)
save("conv-reversed", conv | {"out": convolve(taps[:, ::-1])}, "taps in the other order", **how)
save("conv-no-bias", conv | {"out": convolve(taps, 0 * offset)}, "no bias", **how)
save("conv-no-silu", conv | {"out": convolve(taps, silu=False)}, "no activation", **how)


def chunked(q, k, v, gate, a, chunk):
    """mamba2 by chunks: matrix products of bf16 factors with f32 sums; a group for each head -> out, final state"""
    s, out = np.zeros(v.shape[:1] + v.shape[2:3] + (k.shape[3], v.shape[3]), np.float32), np.zeros_like(v)
    for begin in range(0, v.shape[1], chunk):
        t = slice(begin, begin + chunk)
        logs = np.cumsum(gate[:, t] * a, 1, dtype=np.float32)
        decays = np.tril(np.exp(np.minimum(logs[:, :, None] - logs[:, None], 0)).transpose(0, 3, 1, 2))
        weights = bf16(np.einsum("blhk,bmhk->bhlm", q[:, t], k[:, t]) * decays * gate[:, t].swapaxes(1, 2)[:, :, None])
        out[:, t] = np.einsum("bhlm,bmhv->blhv", weights, v[:, t]) + np.exp(logs)[..., None] * np.einsum("blhk,bhkv->blhv", q[:, t], bf16(s))
        keys = bf16(k[:, t] * (np.exp(logs[:, -1:] - logs) * gate[:, t])[..., None])
        s = (np.exp(logs[:, -1])[..., None, None] * s + np.einsum("blhk,blhv->bhkv", keys, v[:, t])).astype(np.float32)
    return out, s


long = dict(zip("qkv", (bf16(draw(1, 150, 2, 32)) for _ in range(3)))) | {"gate": np.exp(draw(1, 150, 2)) / 20, "a": decay[:2]}
tiles = long | dict(zip(("out", "final_state"), chunked(**long, chunk=64)))
save("right-chunks", tiles, None, recurrence="mamba2", state_layout="kv", **said | {"arithmetic": "chunk64-bf16"})
save("chunks-as-f32", tiles, "arithmetic chunk64-bf16: it rounds more", recurrence="mamba2", state_layout="kv", **said | {"arithmetic": "chunk64-f32"})

for name, passes in expected.items():
    print(name, "right" if passes is None else passes, sep="\t")
