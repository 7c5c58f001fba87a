#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `kvbench judge` says of torch's attention on a GPU, by backend and dtype: results/gpu.md.

    results/table_gpu.py --kvbench build/kvbench --work build/tables -o results/gpu.md [--device cuda]

Needs torch; without a device of that kind it says so and writes nothing. The recorded calls stay in the work folder; the table has
their checksums.
"""
import argparse
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "workloads", "capture"))

# name, batch, query heads, KV heads, queries, cells, dim, factor on q (logits), and what a backend is to do
SCENES = [
    ("decode of 4 x 4k", 4, 32, 8, 1, 4096, 128, 1, {}),
    ("prefill of 1k", 1, 16, 16, 1024, 1024, 64, 1, {"causal": True}),
    ("prefill of 1k, large logits", 1, 16, 16, 1024, 1024, 64, 12, {"causal": True}),
    ("no mask, 256 x 2k", 2, 8, 8, 256, 2048, 128, 1, {}),
    ("window of 256", 1, 8, 8, 1024, 1024, 64, 1, {"causal": True, "window": 256}),
    ("softcap of 30", 1, 8, 8, 512, 512, 128, 8, {"causal": True, "softcap": 30.0}),
]


def steps(torch, q, k, v, does):
    """The formula, one operation after the other."""
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if does.get("softcap"):
        scores = does["softcap"] * torch.tanh(scores / does["softcap"])
    at = torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)[None, :]
    if does.get("causal"):
        scores = scores.masked_fill(at < 0, float("-inf"))
    if does.get("window"):
        scores = scores.masked_fill(at >= does["window"], float("-inf"))
    return torch.softmax(scores, -1) @ v


def sdpa(backend):
    def run(torch, q, k, v, does):
        if does.get("window") or does.get("softcap"):
            raise RuntimeError("takes no window and no softcap")
        with torch.nn.attention.sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(does.get("causal")))
    return run


def flex(torch, q, k, v, does):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def score(s, _b, _h, _i, _j):
        return does["softcap"] * torch.tanh(s / does["softcap"])

    def seen(_b, _h, i, j):
        return (i >= j) & (i - j < (does.get("window") or 1 << 30))

    mask = create_block_mask(seen, None, None, q.shape[2], k.shape[2], device=q.device) if does.get("causal") else None
    return torch.compile(flex_attention)(q, k, v, score_mod=score if does.get("softcap") else None, block_mask=mask)


def backends(torch):
    yield "steps", steps, "math"
    if hasattr(torch.nn, "attention") and hasattr(torch.nn.attention, "SDPBackend"):
        of = torch.nn.attention.SDPBackend
        for name, member, arithmetic in (("SDPA math", "MATH", "math"), ("SDPA flash", "FLASH_ATTENTION", "flash"),
                                         ("SDPA memory-efficient", "EFFICIENT_ATTENTION", "flash"), ("SDPA cuDNN", "CUDNN_ATTENTION", "flash")):
            if hasattr(of, member):
                yield name, sdpa(getattr(of, member)), arithmetic
        yield "FlexAttention", flex, "flash"


def judge(args, path):
    done = subprocess.run([args.kvbench, "judge", path, "-o", path + ".jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode not in (0, 1):
        return "not judged: " + done.stderr.strip().splitlines()[-1], "–", "–"
    with open(path + ".jsonl", encoding="utf-8") as records:
        rho = json.loads(records.read().splitlines()[1])["rho"]
    reads = re.search(r"passes  with (.*)", done.stdout)
    return "right" if done.returncode == 0 else "**wrong**", f"{rho:.3g}", reads.group(1) if reads else "–"


def rows(args, torch, capture):
    for name, batch, heads, kv_heads, n, cells, dim, factor, does in SCENES:
        for dtype in (torch.float16, torch.bfloat16):
            torch.manual_seed(1)
            q, k, v = (torch.randn(batch, h, t, dim).to(dtype).to(args.device) for h, t in ((heads, n), (kv_heads, cells), (kv_heads, cells)))
            q = q * factor
            wide = [x.repeat_interleave(heads // kv_heads, 1) for x in (k, v)]
            for backend, run, arithmetic in backends(torch):
                short = {"torch.float16": "f16", "torch.bfloat16": "bf16"}[str(dtype)]
                try:
                    with torch.no_grad(), contextlib.redirect_stderr(None):
                        out = run(torch, q, *wide, does)
                except RuntimeError as why:  # what a backend does not take
                    yield [name, short, backend, "not taken: " + str(why).splitlines()[0][:60], "–", "–", "–"]
                    continue
                said = {"layout": "bhsd", "causal": "upper-left" if does.get("causal") else "no", "scale": "1/sqrt(d)",
                        "arithmetic": f"{arithmetic}-{short}"} | {key: does[key] for key in ("window", "softcap") if key in does}
                path = capture(os.path.join(args.work, "gpu"), q=q, k=k, v=v, out=out, name=re.sub(r"\W+", "-", f"{name}-{backend}-{short}"),
                               megabytes=512, **said)
                with open(path, "rb") as file:
                    checksum = hashlib.sha256(file.read()).hexdigest()[:16]
                yield [name, short, backend, *judge(args, path), checksum]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvbench", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", dest="output", required=True)
    args = parser.parse_args()
    try:
        import torch
        from capture import capture
    except ImportError as why:
        print(f"unavailable: {why}", file=sys.stderr)
        sys.exit(3)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("unavailable: torch sees no CUDA device", file=sys.stderr)
        sys.exit(3)
    device = torch.cuda.get_device_name() if args.device == "cuda" else "this machine's CPU"
    version = subprocess.check_output([args.kvbench, "--version"], text=True).strip().splitlines()[0]
    judged = list(rows(args, torch, capture))
    with open(args.output, "w", encoding="utf-8") as out:
        print(f"# Attention of torch on a GPU\n\nMade by `make table-gpu`: {device}, torch {torch.__version__}, {version}. Seeded normal q, K and V; "
              "each output judged by\n`kvbench judge` with the arithmetic that the backend is said to do. The files are not kept: their SHA-256 begins "
              "as said.\n\n| call | dtype | backend | judge | rho | right with | file |\n|---|---|---|---|---|---|---|", file=out)
        for row in judged:
            print("| " + " | ".join(row) + " |", file=out)


main()
