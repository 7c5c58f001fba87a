#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What whole engines do with histories of calls, by build: runs `kvbench engine` over each and writes Markdown.

    results/table_engine_histories.py --kvbench build/kvbench -o results/engine-histories.md BUILD_FOLDER…
"""
import argparse
import json
import subprocess

from tables import any_manifest, machine_line, ran

FAMILIES = "llama,llama-96,llama-128,llama-deep,latent,latent-deep,hybrid,delta,windows,windows-deep"
FORMATS = [("f32", "off"), ("f16,q8_0,q4_0", "on")]
VERBS = ["decode", "copy", "remove", "keep", "shift", "save", "load"]
TEXT = """# What whole engines do with histories of calls

Written by `make table-engine-histories`: {machine}

`kvbench engine` plays histories on llama.cpp's built libraries, over seeded models, and judges each call: what it returns, which
positions a sequence has, and the logits. In a model of one layer, logits must be those of a fresh decode of just the visible tokens. In a
model of several layers a row depends on what its token saw, and logits must be those of our decoder, in double, over the same weights. Each model, cache and format had {random} random histories and those of known differences; a wrong one is shrunk. `kvbench engine --script '…'` replays it, `kvbench engine --list` has
the words of this page. Builds: {builds}.

## What differs

"wrong": in this build, in so many models, caches and formats. "right": its history was played, and nothing differed. "–": not played, since the build lacks what
it needs.

{findings}

## What a user of the library should do

{advice}

## By event

Calls made, and after the stroke those that were the first wrong one of their history.

{events}

## By model and cache

Histories, and logits that were compared, over the formats f32 without flash attention, and f16, q8_0 and q4_0 with it; then what
differed in one of them.

{rows}
"""


def run(kvbench, lib, random, formats, flash):
    command = [kvbench, "engine", "--lib", lib, "--family", FAMILIES, "--cache", "both", "--kv", formats, "--flash", flash, "--known",
               "--random", str(random), "--format", "json"]
    return [json.loads(line) for line in ran(command, (0, 1)).splitlines()]


def table(head, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head)] + lines)


def findings_table(known, builds):
    """The smallest history that was found of each, and the builds that have it."""
    lines = []
    for k in known + [{"name": "new", "class": "new", "script": "", "kind": ""}]:
        met = [f for rows in builds.values() for row in rows for f in row["found"] if f["name"] == k["name"]]
        if not met and k["name"] == "new":
            continue
        script = min((f["script"] for f in met), key=lambda s: (s.count(";"), len(s)), default=k["script"])
        worst = max(met, key=lambda f: f["times"], default=None)
        cells = []
        for rows in builds.values():
            wrong = sum(any(f["name"] == k["name"] for f in row["found"]) for row in rows)
            played = any(k["name"] in row["gone"] or k["name"] in row["right"] for row in rows)
            cells.append(f"wrong ({wrong})" if wrong else "right" if played else "–")
        lines.append([k["name"], k["class"], f"`{script}`", (worst["kind"] + ": " + worst["what"]) if worst else k["kind"], *cells])
    return table(["difference", "class", "smallest history", "what is wrong", *builds], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvbench", default="build/kvbench")
    parser.add_argument("--work", default="build/tables")
    parser.add_argument("--random", type=int, default=16)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("lib", nargs="+")
    args = parser.parse_args()
    known = json.loads(subprocess.check_output([args.kvbench, "engine", "--list", "--format", "json"], text=True))
    builds = {}
    for lib in args.lib:
        rows = [row for formats, flash in FORMATS for row in run(args.kvbench, lib, args.random, formats, flash)]
        builds[next(row["build"] for row in rows if row["build"]).replace("llama.cpp ", "")] = rows
    manifest = any_manifest(args)
    events = [[verb, cache] + [
        f"{sum(row['calls'][v] for row in rows if row['cache'] == cache)} / {sum(row['first_wrong'][v] for row in rows if row['cache'] == cache)}"
        for rows in builds.values()] for v, verb in enumerate(VERBS) for cache in ("unified", "split")]
    lines = []
    for family, cache in dict.fromkeys((row["family"], row["cache"]) for row in next(iter(builds.values()))):
        cells = []
        for rows in builds.values():
            same = [row for row in rows if (row["family"], row["cache"]) == (family, cache)]
            names = dict.fromkeys(f["name"] for row in same for f in row["found"])
            cells.append("unavailable" if all(row["unavailable"] for row in same) else "; ".join(
                [f"{sum(row['histories'] for row in same)}, {sum(row['judged'] for row in same)}", *names]))
        lines.append([family, cache, *cells])
    with open(args.output, "w") as out:
        out.write(TEXT.format(
            machine=machine_line(manifest), random=args.random, builds=", ".join(builds), findings=findings_table(known, builds),
            advice="\n".join(f"- *{k['name']}* ({k['class']}): {k['reference']}. Advice: {k['advice']}." for k in known),
            events=table(["event", "cache", *builds], events), rows=table(["model", "cache", *builds], lines)))


if __name__ == "__main__":
    main()
