#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the oracle finds in an output, and what other projects' rules would let pass: results/power-of-check.md.

    results/table_power_of_check.py --program build/tests/whole/test_power --kvbench build/kvbench -o results/power-of-check.md

Runs the program for each length (or takes lines that it printed before: --lines FILE) and makes tables of its lines.
"""
import argparse
import collections
import json
import math
import os

from tables import any_manifest, machine_line, ran

LENGTHS = [64, 512, 4096, 32768]


def number(x):
    return "—" if x is None else "0" if x == 0 else f"{x:.0e}".replace("e-0", "e-").replace("e+0", "e") if x < 0.1 or x >= 1000 else f"{x:.2g}"


def span(values):
    values = [x for x in values if x is not None]
    if not values:
        return "—"
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} … {high}"


def table(head, rows, left=1):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * left + "---:|" * (len(head) - left)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def lines_of(args):
    lines = []
    for name in args.lines or []:
        with open(name) as file:
            lines += [json.loads(line) for line in file]
    if args.lines:
        return lines
    for cells in args.cells:
        lines += [json.loads(line) for line in ran([args.program, "--table", str(cells)], (0,)).splitlines()]
    return lines


TOGETHER = {"64": "*", "512": "*", "4096": "*", "32768": "f16 bf16 int8 q8_0 q4_0 e4m3 a4g64"}
FORMATS = "f32 f16 bf16 int8 q8_0 q5_1 q4_0 q4_1 iq4_nl e4m3 e5m2 mxfp4 a8g64 a4g64"


def together_of(args):
    """What bound and filter say of many rows of one call, with mistakes in the outputs."""
    lines = []
    for cells, formats in TOGETHER.items():
        words = (FORMATS if formats == "*" else formats).split()
        said = ran([args.filter_program, "--table", cells] + words, (0,))
        lines += [json.loads(line) for line in said.splitlines()]
    return lines


def together_table(rows):
    """The least of the larger of rho and z / 8.5 over formats: above 1 fails. Honest ones: the largest."""
    ways = [way for way in dict.fromkeys(row["together"] for row in rows) if way != "an offset"]
    out = []
    for (kernel, cells), group in kernel_lengths(rows):
        line = [kernel, cells, len({row["format"] for row in group})]
        for way in ways:
            sizes = [max(row["rho"], row["z"] / 8.5) for row in group if row["together"] == way]
            worst = max(sizes) if way == "honest" else min(sizes)
            line.append(f"{worst:.2g}" if (worst <= 1) == (way == "honest") else f"**{worst:.2g}**")
        out.append(line)
    return table(["kernel", "cells", "formats"] + ways, out)


def errors_together(rows):
    """The smallest relative error of all outputs that bound or filter fail, and the kernel's own error."""
    out = []
    for (kernel, cells), group in kernel_lengths([row for row in rows if "smallest" in row]):
        missed = [row["smallest"] / target_of(row) for row in group if row["smallest"] > target_of(row)]
        out.append([kernel, cells, len(group), span([row["own_error"] for row in group]), span([row["smallest"] for row in group]),
                    span([target_of(row) for row in group]),
                    f"in {len(missed)}, by a factor of {max(missed):.2g}" if missed else "no"])
    return table(["kernel", "cells", "formats", "own error", "smallest error that fails", "target", "missed"], out)


def target_of(row):
    """1e-5 in f32, 1e-3 in 16 bits, twice the kernel's own error where products are rounded to 8 bits."""
    if row["kernel"] == "flash-int8":
        return 2 * row["own_error"]
    return 1e-3 if row["kernel"] in ("flash-bf16", "flash-f16") else 1e-5


def kernel_lengths(rows):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["kernel"], row["cells"]].append(row)
    order = {kernel: i for i, kernel in enumerate(dict.fromkeys(row["kernel"] for row in rows))}
    return sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0][1]))


def mistakes_table(rows, names):
    """For each kernel and length the smallest rho over formats; in brackets how many formats do not show it."""
    out = []
    for (kernel, cells), group in kernel_lengths(rows):
        line = [kernel, cells, len(group)]
        for name in names:
            rhos = [row["mistakes"][name]["rho"] for row in group if name in row["mistakes"]]
            missed = sum(rho <= 1 for rho in rhos)
            line.append("—" if not rhos else f"**{min(rhos):.2g}** ({missed} of {len(rhos)})" if missed
                        else f"{min(rhos):.2g}")
        out.append(line)
    return table(["kernel", "cells", "formats"] + names, out)


def errors_table(rows):
    out = []
    for (kernel, cells), group in kernel_lengths(rows):
        honest = [row["rho_max"] for row in group]
        ratios = [row["smallest"] / row["own_error"] for row in group if row["own_error"]]
        out.append([kernel, cells, len(group), span([row["rho_median"] for row in group]), span(honest),
                    span([row["own_error"] for row in group]), span([row["smallest"] for row in group]),
                    span(ratios)])
    return table(["kernel", "cells", "formats", "rho, median of rows", "rho, largest", "own error",
                  "smallest error that fails", "the same / own error"], out)


def rules_table(rows, rules):
    out = []
    for (kernel, cells), group in kernel_lengths(rows):
        line = [kernel, cells, span([row["smallest"] for row in group])]
        for rule in rules:
            refused = sum(row[rule] == 0 for row in group)
            cell = span([row[rule] for row in group if row[rule]])
            line.append(cell if not refused else f"{cell} ({refused} honest refused)")
        out.append(line)
    return table(["kernel", "cells", "kvbench"] + rules, out)


def passing_table(rows, rules, names):
    """For each mistake: in how many of the combinations a rule lets it pass; kvbench by the call itself, and by files of it."""
    out = []
    for name in names:
        having = [row["mistakes"][name] for row in rows if name in row["mistakes"]]
        filed = [m for m in having if "files" in m]
        out.append([name, len(having), sum(m["rho"] <= 1 for m in having), missed_of(filed, "files"), missed_of(filed, "rho")] +
                   [sum(not m[rule] for m in having) for rule in rules])
    return table(["mistake", "combinations", "kvbench", "through files", "the same in process"] + rules, out)


def missed_of(mistakes, by):
    """In how many of these that judge passes them: by its files, or by rho."""
    missed = sum(m["rho"] <= 1 if by == "rho" else not m["files"] for m in mistakes)
    return f"{missed} of {len(mistakes)}" if mistakes else "—"


def filed_words(rows):
    refused = [row for row in rows if row.get("files")]
    return f"{len(refused)} of {sum('files' in row for row in rows)} honest calls fail through files"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tests/whole/test_power")
    parser.add_argument("--kvbench", default="build/kvbench")
    parser.add_argument("--work", default="build/tables")
    parser.add_argument("--cells", type=lambda text: [int(x) for x in text.split(",")], default=LENGTHS)
    parser.add_argument("--lines", action="append", metavar="FILE")
    parser.add_argument("--filter-program", default="build/tests/whole/test_filter")
    parser.add_argument("-o", "--output", default="results/power-of-check.md")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    lines = lines_of(args)
    sources = {line["rule"]: line["source"] for line in lines if "rule" in line}
    together = [line for line in lines if "together" in line] or together_of(args)
    rows = list({tuple(line[key] for key in ("kernel", "format", "out", "cells")): line
                 for line in lines if "kernel" in line and "together" not in line}.values())  # the last of several
    rules, names = list(sources), list(dict.fromkeys(name for row in rows for name in row["mistakes"]))
    full = [row for row in rows if row["out"] == "f32"]
    narrow = [row for row in rows if row["out"] != "f32"]
    text = f"""# What the check finds

Written by `make table-power-of-check`. {machine_line(any_manifest(args))}

The last 4 queries of a sequence, 16 query heads over 2 KV heads of 128 channels, Gaussian values: 64 rows of 128 outputs for each
kernel, format and length ({len(rows)} combinations). Mistakes are planted in what the real kernels are handed, and their outputs judged
by the oracle of what was stored. *Error*: of all outputs alike, relative; *own error*: the honest kernel's largest error over
the largest output, against attention of the q that it was given, in double. Ranges are over formats; a column says how many there
were. A kernel that this CPU lacks is not in it.

## Mistakes

The smallest rho over formats; above 1 fails. In bold: not seen in so many formats. What one wrong row of V does to an
output is of the size of one weight, and products rounded to 8 bits (over long contexts those of bf16, too) are off by as much:
rows one by one do not show it, sums over many rows do. Wrong weights show in the log-sum-exp, which is judged as well, and which
no rounding of weights touches.

{mistakes_table(full, names)}

## Mistakes, rows together

What a run judges: each row by its bound, and many rows together by the matched filter (`oracle/filter.h`), z above 8.5 failing.
Here 64 queries of 8 heads (56 queries at 64 cells), Gaussian values; a mistake is made in the outputs alone, and the log-sum-exp is honest, but
where the scale or heads are wrong. The larger of rho and z / 8.5, the least over formats (honest: the largest); above 1 fails.

{together_table(together)}

## Errors of all outputs alike, rows together

The smallest relative error that bound or filter fail, over the same rows; *own error*: the honest kernel's largest over the largest
output. Target: 1e-5 in f32, 1e-3 in 16 bits, twice its own where products are rounded to 8 bits: weights below a step of these may
honestly become 0 or double, and of long rows they are a large share.

{errors_together(together)}

## Errors, row by row

{errors_table(full)}

Outputs of 16 bits, by kernel `flash`, rows of the same type:

{errors_table(narrow)}

Errors of single outputs are judged against all that was added up, sum p |v|, which stays while the output itself shrinks with
the square root of the length: so the smallest relative error that fails grows with it, and a rule that counts relative to the
output alone refuses honest kernels. Formats with zero points are read through terms larger than the element.

## Other projects' rules on the very same outputs

The smallest error that fails. A rule that refuses honest outputs is said to.

{rules_table(full, rules)}

Of the planted mistakes pass the following. *Through files*: the same call as `kvbench judge` knows it, from arrays in files, with what
the kernel declares, and the q that it multiplies where it rounds q: calls of up to 4096 cells in formats that are codes alone. Beside
it, what passes of these in process. {filed_words(full)}.

{passing_table(full, rules, names)}

The rules, computed here with the exact output for their reference:

""" + "\n".join(f"- **{rule}**: {source}" for rule, source in sources.items()) + "\n"
    scratch = args.output + ".tmp"
    with open(scratch, "w") as out:
        out.write(text)
    os.replace(scratch, args.output)


main()
