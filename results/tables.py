#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of results/: what formats cost in accuracy, what growth policies cost in time and memory, what was proved of the
kernels at each level of instruction sets, what sharing saves and pages waste, how near sizes are to engines' logs, how near kernels come
to the limits of the machines that were met.

    results/tables.py formats --kvbench build/kvbench --work build/tables -o results/formats.md [--gpt2 FILE]
    results/tables.py growth  --kvbench build/kvbench --work build/tables -o results/growth.md
    results/tables.py levels  --kvbench build/kvbench --work build/tables -o results/levels.md
    results/tables.py sharing --kvbench build/kvbench --work build/tables -o results/sharing.md [--workloads a,b]
    results/tables.py sizing  --kvbench build/kvbench -o results/sizing.md
    results/tables.py machines -o results/machines.md [--machines results/machines.jsonl]

The others replay with `kvbench run`, the first two traces that they write into the work folder, and turn the records into Markdown.
"""
import argparse
import concurrent.futures
import csv
import glob
import json
import os
import random
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "plots"))
import machines as met

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


def ran(command, good):
    """What a command printed. Ends the script, with the command's complaint, if its exit code is not a good one."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in good:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def records_read(path):
    """The manifest, and the combinations."""
    with open(path) as records:
        manifest, *results = [json.loads(line) for line in records]
    return manifest, results


def replay(args, options, output):
    ran([args.kvbench, "run", "-o", output, "--format", "csv"] + options, (0, 3))
    return records_read(output)


def any_manifest(args):
    """What a run says of the program and the machine."""
    return replay(args, ["--check", "--workload", "plain-decode", "--cache", "seq", "--pool", "f32", "--kernel", "flash"],
                  os.path.join(args.work, "machine.jsonl"))[0]


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
    usual = ["--cache", "contiguous", "--kernel", "openblas", "--set", "sample-ms=1", "--set", "no-guard", "--set", "no-null"] + words
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
        manifest, records = replay(args, usual + values + ["--workload", trace, "--set", "oracle-pairs=100000000"],
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
                                      "--set", "growth=*", "--set", "sample-ms=4000", "--set", "no-guard", "--set", "oracle-pairs=1000000",
                                      "--set", "capacity=65536"], trace[:-6] + ".records.jsonl")
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
LEVELS = ["amx", "avx512fp16", "avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "portable"]


def levels(args):
    """Suite full with the kernels whose code depends on the level, once for each level and value profile. What an earlier
    call finished is kept, and what it left unfinished goes on: all of it takes hours."""
    def asked(level):
        return subprocess.run([args.kvbench, "list", "suites", "--cpu-mask", level], capture_output=True, text=True)
    here = [level for level in LEVELS if asked(level).returncode == 0]
    usual = ["--suite", "full", "--kernel", "flash*", "--set", "no-witness", "--set", "sample-ms=1", "--set", "no-null", "--set", "no-machine", "--resume"]
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
            ran(command, (0, 1))
            print(f"levels: {level} {profile} done", file=sys.stderr)
        if not os.path.exists(output):
            return level, profile, None, []
        return level, profile, *records_read(output)

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


# ---- sharing ------------------------------------------------------------------------------------------------------

PAGES = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def held(args, workload, options):
    """By cache: cells held after each event, the most bytes that they take, bytes reserved; also the manifest."""
    output, events = (os.path.join(args.work, "sharing." + ending) for ending in ("jsonl", "csv"))
    manifest, records = replay(args, ["--check", "--workload", workload, "--kernel", "witness", "--pool", "f16",
                                      "--set", f"timeline={events}"] + options, output)
    cells = {}
    with open(events) as rows:
        for row in csv.DictReader(rows):
            cells.setdefault(row["cache"], []).append(int(row["cells_live"]))
    return manifest, {r["cache"]: (cells[r["cache"]], max(point["live_bytes"] for point in r["memory"]["timeline"]),
                                   r["memory"]["reserved_bytes"]) for r in records if r["status"] == "pass"}


def prompts(args, workload):
    """A line of what cache paged-prefix finds of the prompts that it is offered, by the size of pages; None: there are none."""
    cells = []
    for page in (1, 4, 16, 64):
        records = replay(args, ["--check", "--workload", workload, "--kernel", "witness", "--pool", "f16", "--cache", "paged-prefix",
                                "--set", f"page-cells={page}"], os.path.join(args.work, "sharing.jsonl"))[1]
        told = records[0]["memory"].get("prompts") or {"offered": 0}
        if not told["offered"]:
            return None
        cells.append(f"{told['found'] / told['offered']:.0%}")
    return f"| {workload} | {told['offered']:,} | " + " | ".join(cells) + " |"


def kib(count):
    return f"{count / 1024:,.0f} KiB"


def sharing(args):
    """What each cache holds at most, and what of it is empty or held twice, by the size of pages."""
    peaks, waste, plain, found = [], [], [], []
    for workload in args.workloads.split(","):
        manifest, caches = held(args, workload, ["--cache", "seq", "--cache", "slab"])
        pages = {cells: held(args, workload, ["--cache", "paged", "--set", f"page-cells={cells}"])[1]["paged"] for cells in PAGES}
        rows, shared, _ = caches["seq"]
        copies, alone, reserved = caches["slab"]  # a row for each token of each sequence
        row = [shared] + [pages[cells][1] for cells in (1, 16, 64)] + [reserved]
        peaks.append(f"| {workload} | {kib(alone)} | " + " | ".join(f"{kib(x)} ({x / alone:.0%})" for x in row) + " |")
        waste.append(f"| {workload} | {sum(copies) / len(copies):,.0f} | " +
                     " | ".join(f"{1 - sum(rows) / sum(pages[cells][0]):.1%}" for cells in PAGES) + " |")
        room = reserved / alone * max(copies)  # cells
        found.append(prompts(args, workload))
        plain.append(f"| {workload} | {1 - sum(copies) / len(copies) / room:.0%} | {1 - sum(rows) / len(rows) / room:.0%} |")
    with open(args.output, "w") as out:
        out.write("\n".join([
            "# What sharing saves, and what pages waste", "",
            f"Written by `make table-sharing`: kvbench {manifest['version']}. Counts of cells and their bytes in f16, the same on every "
            "machine.", "",
            "## Held at most", "",
            "The largest number of bytes of occupied cells after any event; pages count whole. `copies`: a row for each token of each "
            "sequence, as if none shared any. In brackets: of that.", "",
            "| workload | copies | seq | paged, 1 cell | paged, 16 | paged, 64 | slab reserves |",
            "|---|---:|---:|---:|---:|---:|---:|", *peaks, "",
            "## Prompts that begin as others did", "",
            "Of the prompts' tokens, how many cache paged-prefix has and are not computed again, by cells of a page: only whole pages are "
            "found.", "", "| workload | offered | 1 | 4 | 16 | 64 |", "|---|---:|---:|---:|---:|---:|", *[f for f in found if f], "",
            "## Waste by the size of pages", "",
            "Of the cells in pages that are held, over all events: how many hold no row of a token, or one that lies in another page, "
            "too (a page copied on write). 0 where there is exactly one row for each token alive.", "",
            "| workload | tokens of all sequences, mean | " + " | ".join(str(cells) for cells in PAGES) + " |",
            "|---|---:|" + "---:|" * len(PAGES), *waste, "",
            "What is reserved for the longest sequence each (slab), of which is empty on average; and, if a token that several sequences "
            "have counted once, is not needed:", "",
            "| workload | empty | not needed |", "|---|---:|---:|", *plain, "",
            "Kwon et al. (SOSP 2023, figure 2) report that systems which reserve for the longest sequence waste 60 to 80 % and pages of 16 "
            "under 4 %. What is said of reserving holds here where lengths differ, and where tokens are shared. What is said of pages "
            "is a matter of length: a sequence's last page is half empty on average, so that its waste is some page / (2 x length): "
            "under 4 % from 200 tokens a sequence on with pages of 16, which only long-decode has here; branches that share a trunk "
            "and are short themselves waste much more.",
            ""]))


# ---- sizing ------------------------------------------------------------------------------------------------

LOGS = "ci/tests/harness/logs"


def sizing(args):
    """What `size --log` says of the excerpts of logs, whose first line names the model and the source."""
    rows, engines = [], {}
    for path in sorted(glob.glob(LOGS + "/*.log")):
        with open(path) as log:
            model, source = log.readline().lstrip("# ").rstrip().split("; ", 1)
        for part in json.loads(ran([args.kvbench, "size", model, "--log", path, "--format", "json"], (0,))):
            rows.append((part, source))
            engines.setdefault(part["engine"].split("@")[0], []).append(part)
    with open(args.output, "w") as out:
        write = lambda *lines: out.write("\n".join(lines) + "\n")
        write("# What engines logged, and what is predicted", "",
              "Written by `make table-sizing`, from the excerpts in `" + LOGS + "`. As logged: within the last digit of the log.", "",
              "| engine | figures | as logged | furthest off |", "|---|---:|---:|---:|")
        for engine, parts in engines.items():
            off = [(p["predicted_bytes"] - p["logged_bytes"]) / p["logged_bytes"] for p in parts if p["is"] != "as logged"]
            furthest = f"{max(off, key=abs):+.1%}" if off else ""
            write(f"| {engine} | {len(parts)} | {len(parts) - len(off)} | {furthest} |")
        write("", "| engine | model | part | predicted | logged | is | source |", "|---|---|---|---:|---:|---|---|")
        for p, source in rows:
            write(f"| {p['engine']} | {p['model']} | {p['part']} | {p['predicted_bytes']:,} | {p['logged_bytes']:,} | {p['is']} | {source} |")
    print(f"sizing: {args.output}", file=sys.stderr)


def machines(args):
    """The last record of each CPU and level, side by side: what `kvbench bench --targets --record-machine` wrote."""
    last = met.read(args.machines)
    names, lines = met.facts(last)
    with open(args.output, "w") as out:
        write = lambda *lines: out.write("\n".join(lines) + "\n")
        write("# Machines: how near kernels come to the limit", "",
              "Written by `make table-machines` from `results/machines.jsonl`, to which `kvbench bench --targets --record-machine` adds a line;",
              "`kvbench report results/machines.jsonl` shows it as a page.", met.ABOUT, "",
              "| " + " | ".join(names) + " |", "|---|---|---:|---:|---|---|---|---:|---:|")
        write(*("| " + " | ".join(line) + " |" for line in lines))
        write("", "| work | figure | " + " | ".join(f"{name}, {isa}" for name, isa in last) + " | target |",
              "|---|---|" + "---:|" * len(last) + "---|")
        for work, figure, cells, target in met.works(last):
            texts = ["–" if not cell else cell[0] + (f" ({cell[1]})" if cell[1] else "") for cell in cells]
            write(f"| {work} | {figure} | " + " | ".join(texts) + f" | {target} |")
    print(f"machines: {args.output}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["formats", "growth", "levels", "sharing", "sizing", "machines"])
    parser.add_argument("--kvbench", default="build/kvbench")
    parser.add_argument("--work", default="build/tables")
    parser.add_argument("--contexts", default=CONTEXTS, help="cells, with commas between; default: %(default)s")
    parser.add_argument("--pools", help="formats, with commas between; default: every one, some also with +had")
    parser.add_argument("--gpt2", help="the dump of GPT-2's K and V rows, f32")
    parser.add_argument("--workloads", default="agent-fork-8x128,beam-search-8x128,parallel-sample-8x128,batched-multi-seq-8x128,"
                        "prefix-reuse-8x128,paged-sharing-8x128,long-decode",
                        help="sharing: with commas between; default: %(default)s")
    parser.add_argument("--run", default="", help="levels: more words for `kvbench run`, such as '--workload long-decode'")
    parser.add_argument("--finished", action="store_true", help="levels: run nothing, tell what earlier calls finished")
    parser.add_argument("--notes", default=os.path.join(os.path.dirname(__file__), "formats-notes.md"))
    parser.add_argument("--machines", default=os.path.join(os.path.dirname(__file__), "machines.jsonl"))
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    {"formats": formats, "growth": growth, "levels": levels, "sharing": sharing, "sizing": sizing, "machines": machines}[args.table](args)


if __name__ == "__main__":
    main()
