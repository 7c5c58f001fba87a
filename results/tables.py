#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of results/: what formats cost in accuracy, what growth policies cost in time and memory, what was proved of the
kernels at each level of instruction sets, and which slowdowns comparisons find.

    results/tables.py formats --kvbench build/kvbench --work build/tables -o results/formats.md [--gpt2 FILE]
    results/tables.py growth  --kvbench build/kvbench --work build/tables -o results/growth.md
    results/tables.py levels  --kvbench build/kvbench --work build/tables -o results/levels.md
    results/tables.py power   --kvbench build/kvbench --work build/tables -o results/power.md

All replay with `kvbench run`, the first two traces that they write into the work folder, and turn the records into Markdown.
"""
import argparse
import concurrent.futures
import json
import os
import random
import struct
import subprocess
import sys
import time

PROFILES = ["gaussian", "llama", "qwen", "peaked"]
CONTEXTS = "1024,16384,131072"
# The real rows are those of one GPT-2 124M dump: 12 layers x 12 heads x 6 tokens x 64, K then V in each layer.
GPT2 = {"layers": 12, "heads": 12, "tokens": 6, "dim": 64}
ROTATED = ["q4_0+had", "a4g64+had", "a2g32+had", "mxfp4+had", "e4m3+had", "kivi2-k+had"]


def context_name(cells):
    return f"{cells // 1024}k" if cells >= 1024 else str(cells)


def trace_write(path, model, values, events):
    header = {"kvbench_trace": 1, "name": os.path.basename(path)[:-6], "source": "written by results/tables.py",
              "model": {"kv_cache.schema_version": 1, **{"kv_cache." + k: v for k, v in model.items()}},
              "values": values}
    with open(path, "w") as out:
        for line in [header] + events:
            out.write(json.dumps(line) + "\n")


def steps(first, n):
    return [{"step": {"pos": [first + i], "seq": [0]}} for i in range(n)]


def replay(args, options, output):
    command = [args.kvbench, "run", "-o", output, "--format", "csv"] + options
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    with open(output) as records:
        lines = [json.loads(line) for line in records]
    return lines[0], lines[1:]


def pools(args):
    rows = json.loads(subprocess.check_output([args.kvbench, "list", "pools", "--format", "json"], text=True))
    return [row["name"] for row in rows if row["bits"]]


def machine_line(manifest):
    return (f"kvbench {manifest['version']}, commit {manifest['commit']}, {manifest['date']}, {manifest['cpu_model']}, "
            f"{manifest['cores']} cores.")


# ---- formats --------------------------------------------------------------------------------------------


def gpt2_write(folder, path):
    """The dump as a trace: all tokens but the last filled, the last one a query. It holds no q: normals of the
    size of the layer's K rows stand in for it."""
    n = GPT2["layers"] * GPT2["heads"] * GPT2["tokens"] * GPT2["dim"]
    with open(path, "rb") as dump:
        numbers = struct.unpack(f"<{2 * n}f", dump.read())
    side = n // GPT2["layers"]
    rng, header, body = random.Random(1), {}, b""
    for layer in range(GPT2["layers"]):
        at = 2 * layer * side
        rows = {"k": numbers[at:at + side], "v": numbers[at + side:at + 2 * side]}
        deviation = (sum(x * x for x in rows["k"]) / side) ** 0.5
        rows["q"] = [rng.gauss(0, deviation) for _ in range(side)]
        for kind in "qkv":
            # [head][token][channel] becomes [token][head][channel]; the generated q has no order
            ordered = rows[kind] if kind == "q" else [
                rows[kind][(h * GPT2["tokens"] + t) * GPT2["dim"] + c]
                for t in range(GPT2["tokens"]) for h in range(GPT2["heads"]) for c in range(GPT2["dim"])]
            header[f"{kind}.{layer}"] = {"dtype": "F32", "shape": [GPT2["tokens"], GPT2["heads"], GPT2["dim"]],
                                         "data_offsets": [len(body), len(body) + 4 * side]}
            body += struct.pack(f"<{side}f", *ordered)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "gpt2.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + body)
    trace = os.path.join(folder, "gpt2.jsonl")
    trace_write(trace, {"layers": GPT2["layers"], "heads": GPT2["heads"], "kv_heads": GPT2["heads"],
                        "k_dim": GPT2["dim"], "v_dim": GPT2["dim"]}, {"tensors": "gpt2.safetensors"},
                [{"fill": {"seq": 0, "n": GPT2["tokens"] - 1}}] + steps(GPT2["tokens"] - 1, 1))
    return trace


def number(x):
    if x is None:
        return "—"
    return "0" if x == 0 else "inf" if x >= 1e300 else f"{x:.1e}" if x < 1e-3 or x >= 1e4 else f"{x:.3g}"


def cost_table(costs, names, bits, columns, side):
    """costs: {(name, side, column): record's format error or None}"""
    parts = [("rel_l2", "rel. L2"), ("max_abs", "max")] + ([("kl_mean", "KL")] if side == "k" else [])
    out = ["| format | bits | " + " | ".join(columns) + " |", "|---|---:|" + "---:|" * len(columns)]
    for name in names:
        cells = []
        for column in columns:
            cost = costs.get((name, side, column))
            cells.append(" · ".join(number(cost[key]) for key, _ in parts) if cost else "—")
        out.append(f"| {name} | {bits[name]:.2f} | " + " | ".join(cells) + " |")
    return [f"{' · '.join(label for _, label in parts)}", ""] + out + [""]


def ratio_line(costs, what, a, b, side, groups, key="rel_l2"):
    """How much larger a's error is than b's, per group of columns: least and largest."""
    cells = []
    for label, columns in groups:
        ratios = [costs[(a, side, c)][key] / costs[(b, side, c)][key] for c in columns
                  if costs.get((a, side, c)) and costs.get((b, side, c)) and costs[(b, side, c)][key]]
        cells.append(f"{min(ratios):.3g} … {max(ratios):.3g}" if ratios else "—")
    return f"| {what} | " + " | ".join(cells) + " |"


def facts(costs, names, groups):
    out = ["| ratio of relative L2 errors, least … largest over contexts | " +
           " | ".join(label for label, _ in groups) + " |", "|---|" + "---:|" * len(groups)]
    for name in ("q8_0", "a4g64", "q4_0", "mxfp4"):
        cells = []
        for _, columns in groups:
            ratios = [costs[(name, "k", c)]["rel_l2"] / costs[(name, "v", c)]["rel_l2"] for c in columns
                      if costs.get((name, "k", c)) and costs.get((name, "v", c)) and costs[(name, "v", c)]["rel_l2"]]
            cells.append(f"{min(ratios):.3g} … {max(ratios):.3g}" if ratios else "—")
        out.append(f"| {name}: as K over as V | " + " | ".join(cells) + " |")
    for bits in (4, 2):
        out.append(ratio_line(costs, f"K with {bits} bits: per token over per channel (kivi{bits}-v over kivi{bits}-k)",
                              f"kivi{bits}-v", f"kivi{bits}-k", "k", groups))
    for name in ("q4_0", "a4g64", "mxfp4"):
        out.append(ratio_line(costs, f"K in {name}: plain over +had", name, name + "+had", "k", groups))
    out.append(ratio_line(costs, "K in e4m3: without a scale over one scale a head", "e4m3", "e4m3-head", "k", groups))
    out.append(ratio_line(costs, "K in e4m3: one scale a layer over one a head", "e4m3-tensor", "e4m3-head", "k", groups))
    return out + [""]


def formats(args):
    started = time.time()
    names = args.pools.split(",") if args.pools else [n for n in pools(args) if n != "f32"] + ROTATED
    words = [w for n in names for w in ("--pool", f"k={n},v=f32", "--pool", f"k=f32,v={n}")]
    usual = ["--cache", "contiguous", "--kernel", "openblas", "--sample-ms", "1", "--no-guard", "--no-null"] + words
    costs, bits, manifest = {}, {}, None

    def take(records, column):
        for r in records:
            side = "v" if r["pool_k"] == "f32" else "k"
            name = r["pool_" + side]
            if r["status"] not in ("pass", "skip"):
                sys.exit(f"{column} {name}: {r['status']}: {r['reason']}")
            if r["status"] == "pass":
                bits.setdefault(name, r["error"]["format"]["bits_" + side])  # of the first rows: of 128 channels
                costs[(name, side, column)] = r["error"]["format"]

    contexts = [int(c) for c in args.contexts.split(",")]
    for cells in contexts:
        trace = os.path.join(args.work, f"context-{context_name(cells)}.jsonl")
        trace_write(trace, {"layers": 1, "heads": 4, "kv_heads": 1, "k_dim": 128, "v_dim": 128},
                    {"profile": "gaussian", "seed": 1}, [{"fill": {"seq": 0, "n": cells - 1}}] + steps(cells - 1, 1))
        values = [w for p in PROFILES for w in ("--values", p)]
        manifest, records = replay(args, usual + values + ["--workload", trace, "--oracle-pairs", "100000000"],
                                   trace[:-6] + ".records.jsonl")
        for profile in PROFILES:
            take([r for r in records if r["workload"].endswith("@" + profile)], f"{profile} {context_name(cells)}")
        print(f"formats: context {context_name(cells)} done after {time.time() - started:.0f} s", file=sys.stderr)
    groups = [(p, [f"{p} {context_name(c)}" for c in contexts]) for p in PROFILES]
    if args.gpt2 and os.path.exists(args.gpt2):
        trace = gpt2_write(args.work, args.gpt2)
        _, records = replay(args, usual + ["--workload", trace], trace[:-6] + ".records.jsonl")
        take(records, "GPT-2")
        groups.append(("GPT-2 rows", ["GPT-2"]))
    else:
        print("formats: no GPT-2 rows: their column is left out", file=sys.stderr)
    with open(args.output, "w") as out:
        write = lambda *lines: out.write("\n".join(lines) + "\n")
        write("# What storage formats cost", "",
              f"Written by `make table-formats` in {time.time() - started:.0f} s. " + machine_line(manifest), "",
              "Attention in double precision over stored rows against the same over original rows, one decode query of 4 "
              "heads at the last position, one KV head of 128 channels, contiguous cache; the replay's kernel "
              "passed its own check in every combination. K and V apart: the other side is f32. bits: of one value, "
              "scales and zeros counted.", "",
              "- rel. L2: norm of the output's error over the norm of the output; max: its largest element",
              "- KL: mean over queries of KL(original weights || stored weights), nats",
              "- GPT-2 rows: K and V of 6 tokens in 12 layers x 12 heads x 64 channels of GPT-2 124M; the dump holds no "
              "q, so normals of the size of the layer's K rows stand in. Groups of 128 do not divide 64: —.", "",
              "## Known facts, checked", "")
        write(*facts(costs, names, groups))
        if os.path.exists(args.notes):
            with open(args.notes) as notes:
                write(notes.read().rstrip(), "")
        for label, columns in groups:
            for side in "kv":
                write(f"## {label}: {side.upper()}", "")
                write(*cost_table(costs, names, bits, columns, side))
    print(f"formats: {args.output} after {time.time() - started:.0f} s", file=sys.stderr)


# ---- growth ------------------------------------------------------------------------------------------------


def growth(args):
    """512 decode steps that cross the doubling from 16k to 32k cells, and one short of it."""
    trace = os.path.join(args.work, "growing.jsonl")
    trace_write(trace, {"layers": 4, "heads": 8, "kv_heads": 8, "k_dim": 128, "v_dim": 128},
                {"profile": "gaussian", "seed": 1}, [{"fill": {"seq": 0, "n": 16320}}] + steps(16320, 128))
    manifest, records = replay(args, ["--workload", trace, "--cache", "contiguous", "--kernel", "openblas",
                                      "--threads", "2", "--pool", "f16", "--pool", "a4g64", "--pool", "kivi4",
                                      "--growth", "*", "--sample-ms", "4000", "--no-guard", "--oracle-pairs", "1000000",
                                      "--capacity", "65536"], trace[:-6] + ".records.jsonl")
    with open(args.output, "w") as out:
        write = lambda *lines: out.write("\n".join(lines) + "\n")
        write("# What growing costs", "", "Written by `make table-growth`. " + machine_line(manifest), "",
              "A contiguous cache of 4 layers x 8 KV heads x 128 channels, capacity 65,536 cells, first growth 256, filled "
              "to 16,320 cells and then decoded for 128 steps: one doubling falls among the steps. Peak: the most the "
              "allocator held. Copied, copying: by all growths of one pass. Decode: nanoseconds turned into ms, over "
              "all passes.", "",
              "| pool | growth | peak MiB | live MiB | copied MiB | copying ms | fill ms | decode median ms | p99 ms | max ms |",
              "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
        for r in records:
            pool = r["pool_k"] if r["pool_k"] == r["pool_v"] else f"{r['pool_k']}, {r['pool_v']}"
            if r["status"] != "pass":
                write(f"| {pool} | {r['growth']} | {r['status']}: {r['reason']} | | | | | | | |")
                continue
            m, d, f = r["memory"], r["time"]["kinds"]["decode"], r["time"]["kinds"]["fill"]
            write(f"| {pool} | {r['growth']} | {m['allocator_peak'] / 2**20:.1f} | {m['allocator_live'] / 2**20:.1f} | "
                  f"{m['copied_bytes'] / 2**20:.1f} | {m['copy_ns'] / 1e6:.1f} | {f['median'] / 1e6:.1f} | "
                  f"{d['median'] / 1e6:.2f} | {d['p99'] / 1e6:.2f} | {d['max'] / 1e6:.2f} |")
    print(f"growth: {args.output}", file=sys.stderr)


# ---- levels ------------------------------------------------------------------------------------------------

SUITE = ["llama", "gaussian", "qwen", "peaked", "flat"]  # the value profiles of suite full
EVERY_CACHE = SUITE[:2]                                  # at the highest level
SHORT = [word for name in ("plain", "batched", "agent", "eagle", "parallel") for word in ("--workload", name + "-*")]
LEVELS = ["avx512fp16", "avx512bf16", "avx512vnni", "avx512", "avx2", "portable"]


def levels(args):
    """Suite full with the kernels whose code depends on the level, once for each level and value profile. What an earlier
    call finished is kept, and what it left unfinished goes on: all of it takes hours."""
    def asked(level):
        return subprocess.run([args.kvbench, "list", "suites", "--cpu-mask", level], capture_output=True, text=True)
    here = [level for level in LEVELS if asked(level).returncode == 0]
    usual = ["--suite", "full", "--kernel", "flash*", "--sample-ms", "1", "--no-null", "--no-machine", "--resume"]
    usual += args.run.split()

    def run(job):
        level, profile = job
        output = os.path.join(args.work, f"levels-{level}-{profile}.jsonl")
        if not os.path.exists(output) and not args.finished:
            command = [args.kvbench, "run", "-o", output, "--cpu-mask", level, "--values", profile] + usual
            if not (level == here[0] and profile in EVERY_CACHE):
                command += ["--cache", "seq", "--cache", "tree"]
            if not (level == here[0] or profile == SUITE[0] or args.run):
                command += SHORT
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode not in (0, 1):
                sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
            print(f"levels: {level} {profile} done", file=sys.stderr)
        if not os.path.exists(output):
            return level, profile, None, []
        with open(output) as records:
            lines = [json.loads(line) for line in records]
        return level, profile, lines[0], lines[1:]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(run, [(level, profile) for level in here for profile in SUITE]))
    done.sort(key=lambda job: here.index(job[0]))
    manifest = next((job[2] for job in done if job[2]), None)
    if not manifest:
        sys.exit("levels: nothing is finished")
    commits = sorted({job[2]["commit"] for job in done if job[2]})
    if len(commits) > 1:
        sys.exit(f"levels: runs of several commits, {', '.join(commits)}: remove what is old from {args.work}")
    with open(args.output, "w") as out:
        write = lambda *lines: out.write("\n".join(lines) + "\n")
        write("# What was proved at each level", "", "Written by `make table-levels`. " + machine_line(manifest), "",
              "Suite full with every kernel whose code depends on the level of instruction sets (`--kernel 'flash*'`), each "
              f"level forced by `--cpu-mask`. At {here[0]}, the highest here, {' and '.join(EVERY_CACHE)} values over every "
              "cache; elsewhere over `seq` and `tree`, which between them take every workload. Below that level `long-decode` "
              f"is left out but with {SUITE[0]} values. Passed: every checked element of "
              "a combination lies within its bound; rho is the largest error over its bound." + (f" Of this only `{args.run}`." if args.run else ""), "")
        write(*[f"- {level}: {asked(level).stderr.split(': ')[-1].strip()}" for level in LEVELS if level not in here], "",
              "| level | values | passed | failed | workloads | formats | flash | flash-int8 | flash-bf16 | flash-f16 |",
              "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
        for level, profile, finished, records in done:
            if not finished:
                write(f"| {level} | {profile} | not run | | | | | | | |")
                continue
            passed = [r for r in records if r["status"] == "pass"]
            rho = {}
            for r in passed:
                rho[r["kernel"]] = max(rho.get(r["kernel"], 0), r["rho"])
            failed = sum(r["status"] not in ("pass", "skip") for r in records)
            cells = [level, profile, len(passed), failed, len({r["workload"] for r in passed}),
                     len({r[side] for r in passed for side in ("pool_k", "pool_v")})]
            cells += [f"{rho[k]:.3f}" if k in rho else "—" for k in ("flash", "flash-int8", "flash-bf16", "flash-f16")]
            write("| " + " | ".join(str(cell) for cell in cells) + " |")
    print(f"levels: {args.output}", file=sys.stderr)


# ---- power -------------------------------------------------------------------------------------------------

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
    parser.add_argument("table", choices=["formats", "growth", "levels", "power"])
    parser.add_argument("--kvbench", default="build/kvbench")
    parser.add_argument("--work", default="build/tables")
    parser.add_argument("--contexts", default=CONTEXTS, help="cells, with commas between; default: %(default)s")
    parser.add_argument("--pools", help="formats, with commas between; default: every one, some also with +had")
    parser.add_argument("--gpt2", help="the dump of GPT-2's K and V rows, f32")
    parser.add_argument("--run", default="", help="levels: more words for `kvbench run`, such as '--workload long-decode'; power: others than usual")
    parser.add_argument("--slowdowns", default="0,2,5,10,20", help="power: percent, with commas between; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=16, help="power: of duels and runs of each build, at most; default: %(default)s")
    parser.add_argument("--minutes", type=float, default=15, help="power: about as long, and fewer rounds then; default: %(default)s")
    parser.add_argument("--finished", action="store_true", help="levels: run nothing, tell what earlier calls finished")
    parser.add_argument("--notes", default=os.path.join(os.path.dirname(__file__), "formats-notes.md"))
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    {"formats": formats, "growth": growth, "levels": levels, "power": power}[args.table](args)


main()
