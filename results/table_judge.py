#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `kvbench judge` says of mistakes that NumPy made, and which kernels give the same bits in other ways: results/judge.md.

    results/table_judge.py --kvbench build/kvbench --work build/tables -o results/judge.md [--calls N]
"""
import argparse
import json
import os
import re
import subprocess
import sys

from tables import machine_line

CALLS = os.path.join(os.path.dirname(__file__), "..", "ci", "tests", "cli", "judge_calls.py")
WAYS = ["batch", "steps", "threads", "pages", "alignment", "again"]


def mistakes(args, folder):
    os.makedirs(folder, exist_ok=True)
    made = subprocess.check_output([sys.executable, CALLS, folder], text=True)
    for name, expected in (line.split("\t") for line in made.splitlines()):
        done = subprocess.run([args.kvbench, "judge", f"{folder}/{name}.npz", "-o", f"{folder}/{name}.jsonl"], stdout=subprocess.PIPE,
                              text=True, check=False)
        if expected == "right":
            if done.returncode:
                sys.exit(f"{name} is right, but: {done.stdout}")
            continue
        with open(f"{folder}/{name}.jsonl", encoding="utf-8") as records:
            rho = json.loads(records.read().splitlines()[1])["rho"]
        reads = re.search(r"passes  with (.*)", done.stdout)
        usual = re.search(r"assert_close (\w+), allclose at 1e-2 (\w+), cosine ([-\d.]+), NMSE (\S+)", done.stdout)
        yield [name.replace("-", " "), "wrong" if done.returncode == 1 else "**right**", "infinite" if rho > 1e300 else f"{rho:.3g}",
               reads.group(1) if reads else "–", *(usual.groups())]


def kernels(args, folder):
    path = f"{folder}/calls.jsonl"
    plugins = [f"{os.path.dirname(args.kvbench)}/plugins/{name}.so" for name in ("ggml", "onnx")]
    subprocess.run([args.kvbench, "run", "--suite", "calls", "--check", "--set", f"calls={args.calls}", "-o", path]
                   + [word for plugin in plugins for word in ("--plugin", plugin)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    with open(path, encoding="utf-8") as records:
        manifest, *results = [json.loads(line) for line in records]
    return manifest, [[r["kernel"], str(r["same"]["calls"])] + ["–" if r["same"][w] is None else "same" if r["same"][w] == 0 else f"{r['same'][w]:.2g}"
                       for w in WAYS] for r in results if "same" in r]


def table(out, heads, rows):
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), file=out)
    for row in rows:
        print("| " + " | ".join(row) + " |", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvbench", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("-o", dest="output", required=True)
    args = parser.parse_args()
    folder = os.path.join(args.work, "judge")
    wrong = list(mistakes(args, folder))
    manifest, same = kernels(args, folder)
    with open(args.output, "w", encoding="utf-8") as out:
        print("# Recorded calls, and bits that stay the same\n\nMade by `make table-judge`. " + machine_line(manifest) + "\n\n"
              "## Mistakes in files\n\nAttention and scans in NumPy with one mistake each (ci/tests/cli/judge_calls.py), judged by `kvbench judge`: the "
              "largest error over its\nbound, the reading by which the call would be right, and what other rules say of the same outputs: "
              "torch.testing.assert_close with its\ndefaults, allclose with 1e-2, cosine, and the sum of squared errors over that of the exact "
              "outputs.\nWhere rho is below 1, the matched filter over all rows decides.\n", file=out)
        table(out, ["mistake", "judge", "rho", "right with", "assert_close", "allclose 1e-2", "cosine", "NMSE"], wrong)
        print("\n## The same bits?\n\nSingle calls of each kernel, made again with the query or sequence alone (batch), a scan token by token (steps), by a "
              "team of\nanother size (threads), with tokens in other pages or states in other slots, at another alignment, and after another "
              "call: the same\nbits, or the largest difference in units of the bound. Outputs of 16 bits that are rounded the other way differ by "
              "up to 2.\n", file=out)
        table(out, ["kernel", "calls"] + WAYS, same)


main()
