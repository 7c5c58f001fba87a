#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which lines of caches, kernels and oracle do the tests run?

coverage.py BUILD        a build with --coverage, after its tests have run

A line counts as run if any object compiled from it ran it: the sources of kernels/vector are compiled for each level of instruction
sets. Objects of a level that this CPU lacks are left out, and named.

Prints a table by folder, and every line that no test runs. ci/coverage.txt must explain each of these lines. Exit 1 if one is not
explained, if an explanation matches no such line, or if a folder is below 95 %. An explanation has the form

    FILE: why
        a line of the file without its indentation; repeated if there are several such lines
        ...
"""
import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = ("caches", "kernels", "oracle")
TARGET = 95.0
LEVELS = {"avx2": "avx2", "avxvnni": "avx_vnni", "avx512": "avx512f", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
          "avx512fp16": "avx512_fp16", "amx": "amx_bf16"}  # object's ending, flag of /proc/cpuinfo
ALONE = {"product_bf16": "avx512_bf16", "product_f16": "avx512_fp16"}  # beginning of its name


def flag_needed(path):
    """The CPU flag that an object's code needs, or None."""
    parts = path.name.split(".")
    if len(parts) > 2:
        return LEVELS.get(parts[1])
    return next((flag for start, flag in ALONE.items() if parts[0].startswith(start)), None)


def lines_read(build):
    """{file: {line: times run}}, and the objects left out."""
    flags = set(next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split())
    counts, left_out, taken = collections.defaultdict(collections.Counter), [], []
    for notes in sorted(path for room in ROOMS for path in (build / room).rglob("*.gcno")):
        source = notes.relative_to(build).with_name(notes.name.split(".")[0] + ".c")
        if source.parent.name == "example-plugin" or not (ROOT / source).exists():
            continue  # a plug-in that scripts load; or left from an old build
        if (flag := flag_needed(notes)) and flag not in flags:
            left_out.append(f"{notes.relative_to(build).with_suffix('')} ({flag})")
        else:
            taken.append(notes)
    text = subprocess.run(["gcov", "--json-format", "--stdout", *taken], capture_output=True, check=True).stdout
    for file in (file for line in text.splitlines() for file in json.loads(line)["files"]):
        name = file["file"].removeprefix("./")
        if name.split("/")[0] in ROOMS:
            for line in file["lines"]:
                counts[name][line["line_number"]] += line["count"]
    return counts, left_out


def explanations_read():
    """{(file, text of a line): [why, once for each such line]}"""
    explained, file, why = collections.defaultdict(list), None, None
    for line in open(ROOT / "ci/coverage.txt"):
        if line.startswith("    "):
            explained[file, line.strip()].append(why)
        elif line.strip() and not line.startswith("#"):
            file, why = line.strip().split(": ", 1)
    return explained


def main(build):
    counts, left_out = lines_read(build)
    explained = explanations_read()
    unknown, good = [], True
    rows = {room: [0, 0] for room in ROOMS}
    for file, lines in sorted(counts.items()):
        text = (ROOT / file).read_text().splitlines()
        for number, times in sorted(lines.items()):
            room = rows[file.split("/")[0]]
            line = text[number - 1].strip()
            if line == "}":  # gcov counts some of them
                continue
            room[0] += times > 0
            room[1] += 1
            if times:
                continue
            if explained[file, line]:
                print(f"{file}:{number}: {line}\n    {explained[file, line].pop()}")
            else:
                unknown.append(f"{file}:{number}: {line}")
    print(f"\n{'room':10}{'lines':>8}{'run':>8}{'share':>10}")
    for room, (run, all_lines) in rows.items():
        share = 100 * run / max(all_lines, 1)
        good = good and share >= TARGET
        print(f"{room:10}{all_lines:8}{run:8}{share:8.1f} %{'' if share >= TARGET else f'  below {TARGET:.0f} %'}")
    for name in left_out:
        print(f"left out, this CPU lacks it: {name}")
    idle = [f"{file}: {line}" for (file, line), whys in explained.items() for _ in whys]
    for line in idle:
        print(f"ci/coverage.txt explains what is run, or is not there: {line}")
    for line in unknown:
        print(f"not run, not explained: {line}")
    return 0 if good and not unknown and not idle else 1


sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
