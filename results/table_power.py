#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `kvbench compare` finds a slowdown, and how often one where there is none: results/power.md.

    results/table_power.py --kvbench build/kvbench --work build/tables -o results/power.md

The example plug-in's kernel does a share of its work once more; files, histories and duels are to find it.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time

from tables import machine_line

KERNEL = "kernels/example-plugin/online.c"
ROW = "        row_attend(x, row / x->problem.n_heads, row % x->problem.n_heads);\n"
PART = "static void part("
# Put into that source: a share of the cells once more. Shares add up over rows, and fractions of cells, so that a call is worth it.
AGAIN = """static const volatile double share = SHARE; /* the same code in every build: only this number differs */
static double due; /* of one row */

__attribute__((noinline)) static void row_again(const kvb_attend *x, uint32_t t, uint32_t h)
{
    static double cells;
    static volatile float kept;
    const kvb_problem *p = &x->problem;
    const float *q = x->q + ((size_t)t * p->n_heads + h) * p->k_dim;
    uint32_t kv = h / (p->n_heads / p->n_kv_heads), cursor = 0;
    float max = -INFINITY, sum = 0, out[4096];

    memset(out, 0, p->v_dim * sizeof *out);
    for (kvb_run run; kvb_mask_next(&x->mask, p->n_tok, p->n_cells, t, &cursor, &run);) {
        cells += due * (run.end - run.begin);
        for (uint32_t cell = run.begin; cells >= 1; cells -= 1, cell = cell + 1 < run.end ? cell + 1 : run.begin) {
            const float *k = kvb_view_row(&x->k, kv, cell), *v = kvb_view_row(&x->v, kv, cell);
            float dot = 0;
            for (uint32_t d = 0; d < p->k_dim; d++)
                dot += q[d] * k[d];
            max = dot > max ? dot : max;
            float w = expf(dot - max);
            sum += w;
            for (uint32_t d = 0; d < p->v_dim; d++)
                out[d] += w * v[d];
        }
    }
    kept = kept + sum + out[0] + out[p->v_dim - 1];
    due = 0;
}

"""
POWER = [word for name in ("agent-fork", "batched-multi-seq", "parallel-sample", "plain-decode", "sink-window", "sliding-window")
         for word in ("--workload", name)] + ["--values", "own", "--values", "llama", "--cache", "seq", "--pool", "f32"]
SHORT_MS, LONG_MS = 50, 200
PAIRS = 100  # as many of the comparisons that runs allow are made


def power(args):
    """How often a slowdown is found, and how often one is where there is none: by two files, by a history, by a duel."""
    slowdowns = [int(s) for s in args.slowdowns.split(",")]
    words = (args.run.split() or POWER) + ["--kernel", "online", "--oracle-pairs", "20000"]
    rng, started, loads, machine_seconds = random.Random(1), time.time(), [], {}
    thresholds = os.path.join(args.work, "power-thresholds.json")
    with open(thresholds, "w") as out:
        json.dump({"kvbench_thresholds": 1, "time": 0.01}, out)

    def build(share):
        """The example plug-in, which does `share` of its work once more."""
        path = os.path.join(args.work, f"power-{share:.4f}")
        with open(KERNEL) as source, open(path + ".c", "w") as out:
            text = source.read()
            assert text.count(PART) == text.count(ROW) == 1
            text = text.replace(PART, AGAIN + PART).replace(ROW, "    {\n" + ROW + "        if ((due += share) >= 0.1)\n    " +
                                                            ROW.replace("attend", "again") + "    }\n")
            text = "#include <string.h>\n" + text
            out.write(text)
        subprocess.run(["cc", "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-DSHARE={share}", "-Ikernels",
                        path + ".c", "-lm", "-o", path + ".so"], check=True)
        return path + ".so"

    def told(what, command):
        """Runs and times it. Its rows; [] if it prints none."""
        begin = time.time()
        loads.append(os.getloadavg()[0])
        done = subprocess.run([args.kvbench] + command, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
        machine_seconds.setdefault(what, []).append(time.time() - begin)
        return json.loads(done.stdout or "[]")

    def duel(new, ms):
        return told(f"duel {ms}", ["compare", "--base-plugin", base, "--new-plugin", new, "--sample-ms", str(ms), "--format", "json",
                                   "--thresholds", thresholds] + words)

    def is_found(rows, slowdown):
        """Where nothing is slower, whatever is named is a false alarm."""
        wanted = ("SLOWER",) if slowdown else ("SLOWER", "FASTER")
        return any(row["verdict"] in wanted for row in rows)

    def run(name, plugin, ms):
        path = os.path.join(args.work, f"power-{name}.jsonl")
        told(f"run {ms}", ["run", "--plugin", plugin, "--sample-ms", str(ms), "--no-machine", "-o", path, "--format", "json"] + words)
        return path

    def kernel_ratio(rows):
        ratios = sorted(row["ratio"] for row in rows if row["metric"] == "time" and row["workload"] != "*" and row["ratio"])
        return ratios[len(ratios) // 2]

    base = build(0)
    gain = (kernel_ratio(duel(build(0.5), LONG_MS)) - 1) / 0.5  # what a share of the work costs of a step
    plugins = {s: build(s / 100 / gain) for s in slowdowns}
    found, ratios = {}, {s: [] for s in slowdowns}

    def count(method, slowdown, rows):
        hits = found.setdefault(method, {}).setdefault(slowdown, [])
        hits.append(is_found(rows, slowdown))

    def rounds(most, share):
        """So many, or fewer where so large a share of the time has gone."""
        for i in range(most):
            if i >= 3 and time.time() - started > share * 60 * args.minutes:
                return
            yield i
            print(f"power: round {i + 1} of {most} done after {time.time() - started:.0f} s", file=sys.stderr)

    # All builds take turns, so that an hour of the machine meets all alike.
    for i in rounds(args.rounds, 0.45):
        for s in slowdowns:
            rows = duel(plugins[s], SHORT_MS)
            count(("duel", SHORT_MS), s, rows)
            ratios[s].append(kernel_ratio(rows))
    files = {}
    for ms, share in ((SHORT_MS, 0.7), (LONG_MS, 0.95)):
        for i in rounds(args.rounds, share):
            for s in ["base"] + slowdowns:
                files.setdefault((ms, s), []).append(run(f"{ms}-{s}-{i}", base if s == "base" else plugins[s], ms))
        pairs = [(b, n) for b in files[(ms, "base")] for n in range(len(files[(ms, "base")]))]
        for s in slowdowns:
            for b, n in rng.sample(pairs, min(PAIRS, len(pairs))):
                count(("files", ms), s, told("compare", ["compare", b, files[(ms, s)][n], "--format", "json",
                                                         "--thresholds", thresholds]))

    def dated(path, number):
        """A copy whose date is in the order of a history: base first."""
        copy = os.path.join(args.work, f"power-history-{number}.jsonl")
        with open(path) as source, open(copy, "w") as out:
            manifest = json.loads(source.readline())
            manifest["date"] = f"2000-01-01T00:{number:02}:00Z"
            out.write(json.dumps(manifest) + "\n" + source.read())
        return copy

    for length in (3, 5):
        for s in slowdowns if len(files[(SHORT_MS, "base")]) >= length else []:
            for _ in range(3 * len(files[(SHORT_MS, "base")])):
                drawn = rng.sample(files[(SHORT_MS, "base")], length) + rng.sample(files[(SHORT_MS, s)], length)
                rows = told("compare", ["compare", "--history", "--format", "json", "--thresholds", thresholds] +
                            [dated(path, number) for number, path in enumerate(drawn)])
                count(("history", length), s, rows)

    with open(files[(SHORT_MS, "base")][0]) as records:
        manifest, combinations = json.loads(records.readline()), sum(1 for _ in records)
    mean = lambda what: sum(machine_seconds[what]) / len(machine_seconds[what])
    methods = {("files", SHORT_MS): (f"`compare` of two files, {SHORT_MS} ms", "1 + 1", 2 * mean(f"run {SHORT_MS}")),
               ("files", LONG_MS): (f"`compare` of two files, {LONG_MS} ms", "1 + 1", 2 * mean(f"run {LONG_MS}")),
               ("history", 3): (f"`compare --history`, {SHORT_MS} ms", "3 + 3", 6 * mean(f"run {SHORT_MS}")),
               ("history", 5): (f"`compare --history`, {SHORT_MS} ms", "5 + 5", 10 * mean(f"run {SHORT_MS}")),
               ("duel", SHORT_MS): (f"duel of plug-ins, {SHORT_MS} ms a side", "in turns", mean(f"duel {SHORT_MS}"))}
    with open(args.output, "w") as out:
        write = lambda *lines: out.write("\n".join(lines) + "\n")
        write("# Which slowdowns are found", "",
              f"Written by `make table-power` in {time.time() - started:.0f} s. " + machine_line(manifest),
              f"The machine was shared: load average {min(loads):.1f} to {max(loads):.1f}, {sum(loads) / len(loads):.1f} in the mean.", "",
              f"The example plug-in's kernel against itself with a share of its work done once more, over {combinations} combinations, "
              "threshold 1 %. Found: the kernel, the cache or a combination was named SLOWER. At 0 % the new build is the base "
              "itself: what is named there, SLOWER or FASTER, is a false alarm. The 99 % of a comparison are meant to hold it "
              "to 1 in 100. Seconds: what one decision cost here.", "",
              "| method | runs | seconds | " + " | ".join("0 %: false alarms" if s == 0 else f"{s} %" for s in slowdowns) + " |",
              "|---|---|---:|" + "---:|" * len(slowdowns))
        for method, (label, runs, seconds) in methods.items():
            if method in found:
                write(f"| {label} | {runs} | {seconds:.0f} | " +
                      " | ".join(f"{sum(hits)} of {len(hits)}" for hits in (found[method][s] for s in slowdowns)) + " |")
        write("", "How large the slowdowns were, by the medians of the duels: " +
              ", ".join(f"{s} %: {100 * (sorted(ratios[s])[len(ratios[s]) // 2] - 1):+.1f} %" for s in slowdowns if ratios[s]) + ".", "",
              "All builds took turns within minutes, so slow hours of the machine are not in this: runs of different days find less, "
              "and may name what is only the machine. Pairs and histories are drawn from the same runs with overlap, so their counts "
              "vary together; duels are independent.")
    print(f"power: {args.output} after {time.time() - started:.0f} s", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvbench", default="build/kvbench")
    parser.add_argument("--work", default="build/tables")
    parser.add_argument("--run", default="", help="other words for `kvbench run` than usual")
    parser.add_argument("--slowdowns", default="0,2,5,10,20", help="percent, with commas between; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=16, help="of duels and runs of each build, at most; default: %(default)s")
    parser.add_argument("--minutes", type=float, default=15, help="about as long, and fewer rounds then; default: %(default)s")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    power(args)


main()
