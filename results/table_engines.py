#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels of others' engines beside ours, how exact and how fast: fills the tables of engines-notes.md.

    results/table_engines.py --kvbench build/kvbench --work build/tables -o results/engines.md
"""
import argparse
import json
import os
import subprocess

from tables import any_manifest, context_name, machine_line, ran, records_read, replay, steps, trace_write

NATIVE = ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]  # that ggml's kernels read in place
BESIDE = ["flash", "flash-int8", "flash-bf16", "ggml", "ggml-mul", "ort", "ort-gqa"]
OTHERS = {"ggml": "ggml", "ort": "ONNX Attention", "ort-gqa": "ONNX GQA", "openblas": "OpenBLAS"}  # in the table of speeds
LONG = [16384, 32768, 65536, 131072]
BENCH_WORKS = ["decode-f32-g1", "decode-f16-*", "decode-bf16-g4", "decode-q8_0-g4", "decode-q4_0-g4", "verify-f16-g4", "batch-in-*", "fork-g4",
               "prefill-f16-g4", "prefill-f32-g4"]


def exact_table(args, plugin):
    """rho and relative L2 error of each kernel over each format: the largest of some workloads."""
    workloads = ["plain-decode-8x128", "batched-multi-seq-8x128", "gpt-oss-like-8x64"]
    _, records = replay(args, ["--check", "--product", "--set", "no-witness", "--set", "no-staging", "--cache", "seq", "--cache", "contiguous", *plugin]
                        + [word for name in workloads for word in ("--workload", name)]
                        + [word for name in NATIVE for word in ("--pool", name)]
                        + [word for name in BESIDE for word in ("--kernel", name)], os.path.join(args.work, "engines.jsonl"))
    lines = ["| format | " + " | ".join(BESIDE) + " | of ggml's tolerance |", "|---|" + "---:|" * (len(BESIDE) + 1)]
    for pool in NATIVE:
        cells = []
        for kernel in BESIDE:
            ran = [r for r in records if r["pool_k"] == pool and r["kernel"] == kernel and r["status"] != "skip"]
            bad = [r for r in ran if r["status"] != "pass"]
            cells.append("–" if not ran else f"fails: {bad[0]['reason'][:60]}" if bad else
                         f"{max(r['rho'] for r in ran):.2g} / {max(r['error']['rel_l2'] for r in ran):.1e}")
        shares = [max(r["foreign"]["share"] for r in records if r["pool_k"] == pool and r["kernel"] == kernel and "foreign" in r)
                  for kernel in ("ggml", "ggml-mul")
                  if any(r["pool_k"] == pool and r["kernel"] == kernel and "foreign" in r for r in records)]
        lines.append(f"| {pool} | " + " | ".join(cells) + " | " + ", ".join(f"{share:.2g}" for share in shares) + " |")
    engine = "; ".join(dict.fromkeys(r["foreign"]["engine"] for r in records if "foreign" in r))
    return engine, lines


def long_table(args, plugin):
    """ggml over f16 rows, by cells: its error over what its own project tolerates."""
    model = {"layers": 1, "heads": 8, "kv_heads": 8, "k_dim": 128, "v_dim": 128}
    lines = ["| cells | 1 thread | 2 threads | bf16 rows, 1 thread |", "|---|---:|---:|---:|"]
    for cells in LONG:
        path = os.path.join(args.work, f"long-{cells}.jsonl")
        trace_write(path, model, {"profile": "gaussian", "seed": 1}, [{"fill": {"seq": 0, "n": cells - 1}}] + steps(cells - 1, 1))
        shares = []
        for pool, threads in (("f16", "1"), ("f16", "2"), ("bf16", "1")):
            command = [args.kvbench, "run", "--check", "--set", "no-witness", "--workload", path, "--cache", "contiguous", "--pool", pool, "--kernel",
                       "ggml", "--threads", threads, "--set", "exhaustive", *plugin, "-o", path[:-6] + ".result.jsonl", "--format", "csv"]
            ran(command, (0, 1))
            share = records_read(path[:-6] + ".result.jsonl")[1][0]["foreign"]["share"]
            shares.append(f"{share:.2f}" + (" fails" if share > 1 else ""))
        lines.append(f"| {context_name(cells)} | " + " | ".join(shares) + " |")
    return lines


SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}


def seconds(text):
    number, unit = text.split()
    return float(number) * SECONDS[unit]


def side_line(work, rows, is_quiet):
    """One work: time of a call, over that of ours, and the share of the limit if it means anything."""
    mine = [row for row in rows if row["work"] == work and row["of both"] is not None and "," not in row["kernel"]]
    best = min((row for row in mine if row["kernel"].startswith("flash") and "WRONG" not in str(row["met"])), key=lambda r: seconds(r["time"]))
    other = {row["kernel"]: row for row in mine if row["kernel"] in OTHERS}
    share = lambda row: f"; {row['of both']:.2f} of the limit" if is_quiet else ""
    cells = [f"{best['time']} ({best['kernel']}{share(best)})"]
    for name in OTHERS:
        row = other.get(name)
        wrong = "; beyond its tolerance" if row and "inexact" in str(row["met"]) else ""
        cells.append(f"{row['time']} ({seconds(row['time']) / seconds(best['time']):.2f}{share(row)}{wrong})" if row else "–")
    return f"| {work} | " + " | ".join(cells) + " |"


def side_table(args, plugin):
    command = [args.kvbench, "bench", "--targets", *plugin, "--format", "json", "--seconds", args.seconds]
    command += [word for name in OTHERS for word in ("--beside", name)]
    rows = json.loads(subprocess.check_output(command + [word for work in BENCH_WORKS for word in ("--work", work)], text=True))
    load = os.getloadavg()[1] / os.cpu_count()
    told = [] if load < 1.5 else [f"Load average {load:.0f} for each core, of others too: shares of the limit say nothing then and are left out.", ""]
    return told + ["| work | kvbench | " + " | ".join(OTHERS.values()) + " |", "|---|---:" + "|---:" * len(OTHERS) + "|"] + \
        [side_line(work, rows, load < 1.5) for work in dict.fromkeys(row["work"] for row in rows)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvbench", default="build/kvbench")
    parser.add_argument("--work", default="build/tables")
    parser.add_argument("--seconds", default="1.5", help="of each line of the table of speeds; default: %(default)s")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    plugin = [word for name in ("ggml", "onnx") for word in ("--plugin", os.path.join(os.path.dirname(args.kvbench), f"plugins/{name}.so"))]
    manifest = any_manifest(args)
    engine, exact = exact_table(args, plugin)
    long = long_table(args, plugin)
    side = side_table(args, plugin)
    with open(os.path.join(os.path.dirname(__file__), "engines-notes.md")) as notes:
        text = notes.read()
    tables = {"EXACT": exact, "LONG": long, "SIDE": side, "MACHINE": [machine_line(manifest) + f" Engines: {engine}."]}
    for name, lines in tables.items():
        text = text.replace(f"@{name}@", "\n".join(lines))
    with open(args.output, "w") as out:
        out.write(text)


if __name__ == "__main__":
    main()
