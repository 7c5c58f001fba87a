#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""numpy_attention.py TRACE ANSWERS: does every row of the oracle's answers agree with attention as NumPy computes it?

Shares nothing with the C code: reads the trace's lines and the tensors itself, keeps its own account of the tokens and positions
that each sequence holds, and computes softmax(scale q.K) V over the rows that a query sees by the rules of kernels/model.h. Prints
the largest difference; exit 1 with the first row that is wrong or missing.
"""
import json
import math
import sys

import numpy as np

TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4"}


def tensors_read(path):
    raw = open(path, "rb").read()
    data = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:data])
    facts = header.pop("__metadata__", {})
    return facts, {
        name: np.frombuffer(raw[data + t["data_offsets"][0]:data + t["data_offsets"][1]], TYPES[t["dtype"]])
        .reshape(t["shape"]).astype(np.float64 if t["dtype"] != "I32" else np.int64)
        for name, t in header.items()
    }


def groups_read(model):
    """The group of each layer, in a list."""
    if "groups" in model:
        return [next(g for g in model["groups"] if layer in g["layers"]) for layer in range(model["kv_cache.layers"])]
    one = {key: model[f"kv_cache.{key}"] for key in ("heads", "kv_heads", "k_dim", "v_dim")}
    one.update({key: model[key] for key in ("scale", "softcap") if key in model})
    return [one] * model["kv_cache.layers"]


class Account:
    """A sequence is a list of (position, row), ascending; each of its nodes is such a list, the node's path.

    A row is a token's number. A row that a shift made is `tokens_all` + its index in `moved`, a list of (original row, positions by
    which it was rotated)."""

    def __init__(self, tokens_all):
        self.tokens_all, self.moved, self.settled = tokens_all, [], 0
        self.seqs = {}
        self.nodes = {}
        self.slots = {}
        self.tokens = 0

    def next(self, s):
        return self.seqs[s][-1][0] + 1 if self.seqs.get(s) else 0

    def cut(self, s, p0, p1):
        self.seqs[s] = [(p, t) for p, t in self.seqs.get(s, []) if not p0 <= p < p1]

    def shift(self, s, p0, p1, goes):
        """Shifts a range. Shifts without a step between them act as one."""
        for i, (p, row) in enumerate(self.seqs.get(s, [])):
            if p0 <= p < p1:
                of, by = row, goes(p) - p
                if row >= self.tokens_all + self.settled:
                    of, by = self.moved[row - self.tokens_all][0], self.moved[row - self.tokens_all][1] + by
                self.seqs[s][i] = (goes(p), self.tokens_all + len(self.moved))
                self.moved.append((of, by))

    def apply(self, kind, e):
        """Applies an event. Returns for each of its queries (position, all tokens up to it)."""
        queries = []
        if kind in ("step", "prefill", "fill", "propose"):
            self.settled = len(self.moved)
        if kind in ("step", "prefill", "fill"):
            for s in e["seq"] if kind == "step" else [e["seq"]] * e["n"]:
                s, *others = s if isinstance(s, list) else [s]
                p = self.next(s)
                for holder in (s, *others):
                    self.seqs.setdefault(holder, []).append((p, self.tokens))
                self.tokens += 1
                if kind != "fill":
                    queries.append((p, list(self.seqs[s])))
        elif kind == "propose":
            for parent, s in zip(e["parents"], e.get("seq", [0] * len(e["parents"]))):
                nodes = self.nodes.setdefault(s, [])
                path = [] if parent < 0 else nodes[parent]
                nodes.append(path + [(self.next(s) + len(path), self.tokens)])
                self.tokens += 1
                queries.append((nodes[-1][-1][0], self.seqs.get(s, []) + nodes[-1]))
        elif kind == "commit":
            s = e.get("seq", 0)
            for node in e["accepted"]:
                self.seqs.setdefault(s, []).append((self.next(s), self.nodes[s][node][-1][1]))
            del self.nodes[s]
        elif kind == "seq_cp":
            p0, p1 = e.get("p0", 0), e.get("p1", math.inf)
            part = [(p, t) for p, t in self.seqs[e["src"]] if p0 <= p < p1]
            self.seqs[e["dst"]] = sorted(self.seqs.get(e["dst"], []) + part)
        elif kind == "seq_rm":
            self.cut(e["seq"], e.get("p0", 0), e.get("p1", math.inf))
        elif kind == "seq_add":
            if e["delta"]:
                self.shift(e["seq"], e.get("p0", 0), e.get("p1", math.inf), lambda p: p + e["delta"])
        elif kind == "seq_div":
            if e["d"] > 1:
                self.shift(e["seq"], e.get("p0", 0), e.get("p1", math.inf), lambda p: p // e["d"])
        elif kind == "defrag":
            pass  # queries see the same as before
        elif kind == "seq_keep":
            self.seqs = {e["seq"]: self.seqs[e["seq"]]}
        elif kind == "rewind":
            self.cut(0, e["len"], math.inf)
        elif kind == "clear":
            self.seqs = {}
        elif kind == "reorder":
            before = {s: list(held) for s, held in self.seqs.items()}
            for dst, src in zip(e["dst"], e["src"]):
                self.seqs[dst] = list(before.get(src, []))
        elif kind == "save":
            kept = self.seqs if "seq" not in e else {e["seq"]: self.seqs.get(e["seq"], [])}
            self.slots[e["slot"]] = {s: list(tokens) for s, tokens in kept.items()}
        elif kind == "load":
            kept = {s: list(tokens) for s, tokens in self.slots[e["slot"]].items()}
            self.seqs = {**self.seqs, e["seq"]: next(iter(kept.values()))} if "seq" in e else kept
        else:
            sys.exit(f"event {kind} is not known")
        return queries


def turned(group, k, delta):
    """K rows [kv_heads][k_dim] of a token that moves by delta, in the f32 steps that caches/cache.h prescribes."""
    k = k.astype(np.float32)
    rope = group["rope"]
    dims, first = rope["dims"], rope.get("first", group["v_dim"] if group.get("latent") else 0)
    for i in range(dims // 2):
        angle = delta * math.pow(rope["base"], -2 * i / dims)
        c, s = np.float32(math.cos(angle)), np.float32(math.sin(angle))
        a, b = (first + 2 * i, first + 2 * i + 1) if rope["pairing"] == "neighbours" else (first + i, first + i + dims // 2)
        x, y = k[:, a].copy(), k[:, b].copy()
        k[:, a], k[:, b] = x * c - y * s, x * s + y * c
    return k.astype(np.float64)


def visible(group, p, past):
    def sees(j):
        if group.get("window") and j + group["window"] <= p:
            return j < group.get("sinks", 0)
        return not group.get("chunk") or j // group["chunk"] == p // group["chunk"]

    return [t for j, t in past if sees(j)]


def attend(group, softcap, sinks, q, keys, values):
    """One query: q [heads][k_dim], keys and values [cells][kv_heads][dim]. Output [heads][v_dim] and log-sum-exp [heads]."""
    each = group["heads"] // group["kv_heads"]
    keys, values = np.repeat(keys, each, axis=1), np.repeat(values, each, axis=1)
    scale = np.float32(group.get("scale", 1 / math.sqrt(group["k_dim"])))  # rounded as for kernels
    s = np.einsum("hd,chd->hc", q, keys) * float(scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if sinks is not None:
        s = np.concatenate([s, sinks[:, None]], axis=1)
    top = s.max(axis=1, keepdims=True)
    weights = np.exp(s - top)
    total = weights.sum(axis=1, keepdims=True)
    return np.einsum("hc,chd->hd", (weights / total)[:, :len(keys)], values), (top + np.log(total))[:, 0]


def main(trace, answers):
    lines = [json.loads(line) for line in open(trace)]
    facts, tensors = tensors_read(answers)
    groups = groups_read(lines[0]["model"])
    account, row, at, worst = Account(len(tensors["k.0"])), 0, 0, 0.0
    for number, line in enumerate(lines[1:], 2):
        if "refused" in line:
            continue
        (kind, content), = line.items()
        first = account.tokens
        made = len(account.moved)
        queries = account.apply(kind, content)
        for of, delta in account.moved[made:]:
            for layer, group in enumerate(groups):
                k = tensors[f"k.{layer}"]
                tensors[f"k.{layer}"] = np.concatenate([k, turned(group, k[of], delta)[None]])
                if not group.get("latent"):
                    v = tensors[f"v.{layer}"]
                    tensors[f"v.{layer}"] = np.concatenate([v, v[of][None]])
        for layer, group in enumerate(groups):
            k = tensors[f"k.{layer}"]
            v = k[:, :, :group["v_dim"]] if group.get("latent") else tensors[f"v.{layer}"]
            for i, (p, past) in enumerate(queries):
                seen = visible(group, p, past)
                out, lse = attend(group, float(facts["softcap"]) or group.get("softcap", 0), tensors.get(f"sinks.{layer}"),
                                  tensors[f"q.{layer}"][first + i], k[seen], v[seen])
                size = 1 + np.abs(v[seen]).max()
                for head in range(group["heads"]):
                    place = [number, layer, i, head, len(seen)]
                    if row >= len(tensors["rows"]) or tensors["rows"][row].tolist() != place:
                        sys.exit(f"row {row}: line, layer, query, head, cells {place}; the oracle has "
                                 f"{tensors['rows'][row:row + 1].tolist()}")
                    got = tensors["out"][at:at + group["v_dim"]]
                    error = max(np.abs(got - out[head]).max() / size, abs(tensors["lse"][row] - lse[head]) / (1 + abs(lse[head])))
                    worst = max(worst, error)
                    if not error < 1e-12:
                        sys.exit(f"row {row}: line, layer, query, head, cells {place}: {error:.3g}\n"
                                 f"  {out[head]}, {lse[head]}\n  {got}, {tensors['lse'][row]}")
                    row, at = row + 1, at + group["v_dim"]
    if row != len(tensors["rows"]):
        sys.exit(f"the oracle has {len(tensors['rows'])} rows instead of {row}")
    print(f"{row} rows, largest difference {worst:.2g}")


main(*sys.argv[1:])
