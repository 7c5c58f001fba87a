#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `kvbench compare` finds a slowdown, and how often one where there is none: results/power.md.

    results/table_power.py --kvbench build/kvbench --work build/tables -o results/power.md

Runs of the example plug-in's kernel are compared with each other, and with copies made slower; duels meet builds that do a share of
the work once more.
"""
import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time

from tables import machine_line, ran

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
PLANTED = (2, 5, 10, 20, 50)  # percent


def power(args):
    """How often a slowdown is found, and how often one is where there is none: by two files, by a history, by a duel."""
    slowdowns = [int(s) for s in args.slowdowns.split(",")]
    sides = [int(n) for n in args.runs.split(",")]
    words = (args.run.split() or POWER) + ["--kernel", "online", "--set", "oracle-pairs=20000"]
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
        said = ran([args.kvbench] + command, (0, 1))
        machine_seconds.setdefault(what, []).append(time.time() - begin)
        return json.loads(said or "[]")

    def duel(new, ms):
        return told(f"duel {ms}", ["compare", "--base-plugin", base, "--new-plugin", new, "--set", f"sample-ms={ms}", "--format", "json",
                                   "--thresholds", thresholds] + words)

    def is_found(rows, slowdown):
        """Where nothing is slower, whatever is named is a false alarm."""
        wanted = ("SLOWER",) if slowdown else ("SLOWER", "FASTER")
        return any(row["verdict"] in wanted for row in rows)

    def run(name, plugin, ms):
        path = os.path.join(args.work, f"power-{name}.jsonl")
        told(f"run {ms}", ["run", "--set", "no-witness", "--plugin", plugin, "--set", f"sample-ms={ms}", "--set", "no-machine", "-o", path, "--format", "json"] + words)
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
    for i in rounds(args.rounds, 0.4):
        for s in slowdowns:
            rows = duel(plugins[s], SHORT_MS)
            count(("duel", SHORT_MS), s, rows)
            ratios[s].append(kernel_ratio(rows))
    nulls = [run(f"null-{i}", base, SHORT_MS) for i in range(args.nulls)]

    def planted(path, name, percent, whole):
        """A copy of a run in which one combination, or the whole kernel, takes so many percent longer."""
        copy = os.path.join(args.work, f"power-planted-{name}.jsonl")
        with open(path) as source, open(copy, "w") as out:
            for number, line in enumerate(source):
                record = json.loads(line)
                if number and record["time"] and (whole or number == 1):
                    for key in ("median", "low", "high", "min", "max", "total", "p99", "mad"):
                        record["time"][key] = record["time"][key] and record["time"][key] * (1 + percent / 100)
                    record["time"]["series"] = [ns * (1 + percent / 100) for ns in record["time"]["series"]]
                out.write(json.dumps(record) + "\n")
        return copy

    def compared(base_runs, new_runs, strict):
        return told("compare", ["compare", *base_runs, "--", *new_runs, "--format", "json"] + (["--thresholds", thresholds] if strict else []))

    for runs in sides:
        pairs = list(itertools.combinations(range(len(nulls)), 2)) if runs == 1 else range(args.draws)
        for pair in pairs:
            drawn = [nulls[i] for i in pair] if runs == 1 else rng.sample(nulls, 2 * runs)
            for strict in (False, True):
                named = [row for row in compared(drawn[:runs], drawn[runs:], strict) if row["verdict"] in ("SLOWER", "FASTER")]
                found.setdefault(("null", runs), {}).setdefault(strict, []).append(bool(named))
        for percent in PLANTED:
            for whole in (False, True):
                for _ in range(args.plants):
                    drawn = rng.sample(nulls, 2 * runs)
                    slow = [planted(path, i, percent, whole) for i, path in enumerate(drawn[runs:])]
                    count(("planted", runs, whole), percent, compared(drawn[:runs], slow, True))
        print(f"power: {runs} + {runs} runs done after {time.time() - started:.0f} s", file=sys.stderr)

    with open(nulls[0]) as records:
        manifest, combinations = json.loads(records.readline()), sum(1 for _ in records)
    mean = lambda what: sum(machine_seconds[what]) / len(machine_seconds[what])
    of = lambda hits: f"{sum(hits)} of {len(hits)}"
    with open(args.output, "w") as out:
        write = lambda *lines: out.write("\n".join(lines) + "\n")
        write("# Which slowdowns are found", "",
              f"Written by `make table-power` in {time.time() - started:.0f} s. " + machine_line(manifest),
              f"The machine was shared: load average {min(loads):.1f} to {max(loads):.1f}, {sum(loads) / len(loads):.1f} in the mean.", "",
              "## Files", "",
              f"{len(nulls)} runs of one build, {SHORT_MS} ms a combination, {combinations} combinations. False alarms: comparisons of these "
              "that name anything SLOWER or FASTER, meant to be 1 in 100 at most. One run a side: all pairs; several: drawn at random, with overlap. "
              "Then one combination, or all of the kernel, is made slower in the files of one side, and found if anything is named SLOWER, "
              "threshold 1 %.", "",
              "| runs | false alarms, 5 % | false alarms, 1 % | made slower | " + " | ".join(f"{p} %" for p in PLANTED) + " |",
              "|---|---:|---:|---|" + "---:|" * len(PLANTED))
        for runs in sides:
            for whole in (False, True):
                alarms = ["", ""] if whole else [of(found[("null", runs)][strict]) for strict in (False, True)]
                write(f"| {'' if whole else f'{runs} + {runs}'} | {alarms[0]} | {alarms[1]} | {'kernel' if whole else 'combination'} | " +
                      " | ".join(of(found[("planted", runs, whole)][p]) for p in PLANTED) + " |")
        write("", f"A run takes {mean(f'run {SHORT_MS}'):.0f} s.", "",
              "## Duels", "",
              "The example plug-in's kernel against itself with a share of its work done once more, in turns, threshold 1 %. "
              f"{SHORT_MS} ms a side, {mean(f'duel {SHORT_MS}'):.0f} s each. At 0 % the new build is the base itself: what is named there, "
              "SLOWER or FASTER, is a false alarm.", "",
              "| " + " | ".join("0 %: false alarms" if s == 0 else f"{s} %" for s in slowdowns) + " |",
              "|" + "---:|" * len(slowdowns),
              "| " + " | ".join(of(found[("duel", SHORT_MS)][s]) for s in slowdowns) + " |", "",
              "How large the slowdowns were, by the medians of the duels: " +
              ", ".join(f"{s} %: {100 * (sorted(ratios[s])[len(ratios[s]) // 2] - 1):+.1f} %" for s in slowdowns if ratios[s]) + ".")
    print(f"power: {args.output} after {time.time() - started:.0f} s", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvbench", default="build/kvbench")
    parser.add_argument("--work", default="build/tables")
    parser.add_argument("--run", default="", help="other words for `kvbench run` than usual")
    parser.add_argument("--slowdowns", default="0,2,5,10,20", help="percent, with commas between; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=16, help="of duels, at most; default: %(default)s")
    parser.add_argument("--nulls", type=int, default=40, help="runs of one build; default: %(default)s")
    parser.add_argument("--runs", default="1,3,5", help="how many of them a side, with commas between; default: %(default)s")
    parser.add_argument("--draws", type=int, default=300, help="comparisons of several of these; default: %(default)s")
    parser.add_argument("--plants", type=int, default=20, help="comparisons for each planted slowdown; default: %(default)s")
    parser.add_argument("--minutes", type=float, default=15, help="about as long, and fewer rounds then; default: %(default)s")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    power(args)


main()
