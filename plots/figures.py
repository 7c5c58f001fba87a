# SPDX-License-Identifier: Apache-2.0
"""The plots: which there are, and what of the records each shows. draw.py draws them."""
import math
import re
from collections import namedtuple
from statistics import median

from records import (at, bits, cache, fastest, geometric_mean, grouped, median_of, pool, pool_short, race, rates, timed)
from units import number, step_of

# A section of the page: its panels, all of one of draw.py's sizes. The page says `absent` if there are no panels.
Figure = namedtuple("Figure", "key title caption absent size panels")
# One picture. `source` names its part of plots.gp, or "heat"; blocks: {name: [(label, rows of numbers), …]}.
Panel = namedtuple("Panel", "key source title description settings blocks")

def titled(runs, run, text):
    return f"{text} ({run.label})" if len(runs) > 1 else text


def apart(places, gap):
    """Moves sorted places up until each is at least a gap above the one before. Then labels do not touch."""
    moved = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else max(place, gap / 2))
    return moved


# ---- roofline ------------------------------------------------------------------------------------------------


def peak_labels(peaks):
    """The names of peaks and where they stand. Peaks that lie close together share a name."""
    labels = []
    for name, p in sorted(peaks, key=lambda peak: peak[1]):
        text = f"{name} peak {number(p, 'Gop/s')}"
        if labels and p < 1.4 * labels[-1][1]:
            text = f"{labels.pop()[0]}, {text}"
        labels.append((text, p))
    return labels


def roofline_panel(runs, run, threads, records, key):
    points = [r for r in fastest(records, lambda r: (r["workload"], pool(r), r["kernel"])).values()
              if at(r, "traffic.gb_per_s") and at(r, "traffic.gflop_per_s")]
    if not points:
        return None
    series = [(kernel, [(at(r, "traffic.gflop_per_s") / at(r, "traffic.gb_per_s"), at(r, "traffic.gflop_per_s"))
                        for r in group]) for kernel, group in grouped(points, lambda r: r["kernel"]).items()]
    xs, ys = zip(*[p for _, rows in series for p in rows])
    machine = rates(run, threads)
    peaks = [(name, p) for name, p in machine.get("peak_gop_per_s", {}).items() if p]
    peak = dict(peaks).get("f32", 0)
    left = min(xs) / 4
    # Leave out levels whose line meets the peak left of the plot.
    slopes = [(level, b) for level, b in machine.get("read_gb_per_s", {}).items() if b and left * b < 0.7 * peak]
    right = max([max(xs) * 2] + [2 * peak / b for _, b in slopes])
    roofs = [(level, [(left, left * b), (peak / b, peak)]) for level, b in slopes]
    roofs += [(name, [(left, p), (right, p)]) for name, p in peaks]
    slope_names = [(f"{level} {number(b, 'GB/s')}", [(left * 1.06, left * b * 1.28)]) for level, b in slopes]
    peak_names = [(text, [(right / 1.05, p * 1.25)]) for text, p in peak_labels(peaks)]
    best = {kernel: max(y for _, y in rows) for kernel, rows in series}
    title = titled(runs, run, f"{threads} thread" + "s" * (threads > 1))
    return Panel(key, "roofline", title, f"Roofline at {title}: the most reached is " +
                 ", ".join(f"{kernel} {number(y, 'GFLOP/s')}" for kernel, y in best.items()) + ".",
                 {"left": left, "right": right, "bottom": min(ys) / 2, "top": 2.5 * max([p for _, p in peaks] + [max(ys)])},
                 {"roofs": roofs, "slopes": slope_names, "peaks": peak_names, "points": series})


def roofline(runs):
    panels = [roofline_panel(runs, run, threads, records, f"roofline-{i}-{threads}") for i, run in enumerate(runs)
              for threads, records in grouped(timed([run]), lambda r: r["threads"]).items()]
    bare = [run.label for run in runs if not run.manifest["machine"]]
    return Figure(
        "roofline", "Roofline",
        "Work a second against operations for each byte read, of the kind of step with the most operations. Each point is a "
        "workload, a storage format and a kernel, with its fastest cache. Slanted lines: read bandwidth of each level of the "
        "memory; flat lines: multiply-add peaks; both measured at the start of the run with this number of threads. A point "
        "may lie above the line of a far level when its rows fit a nearer one: the columns “of read” and “of limit” compare "
        "each combination with the bandwidth measured at its own working set." +
        (f" No lines for {', '.join(bare)}: the machine was not measured in that run." if bare else ""),
        "no roofline in these files: no combination that was timed passed.", "wide", [p for p in panels if p])


# ---- time against context ------------------------------------------------------------------------------------

BIT_CLASSES = [24, 12, 7, 4.9, 3.6, 0]  # least bits of each class; the fastest format of a class is drawn


def lines_panel(key, source, title, description, blocks, unit, settings):
    """Lines over linear axes that begin at 0, in the unit of the largest value. Their names stand in a column beside their ends,
    in the same order, each with its line's mark."""
    everything = [row for series in blocks.values() for _, rows in series for row in rows]
    size, name = step_of(max(y for _, y in everything), unit)
    blocks = {block: [(label, [(x, y / size) for x, y in rows]) for label, rows in series] for block, series in blocks.items()}
    left, right = min(x for x, _ in everything), max(x for x, _ in everything)
    right = max(right, left + 1)
    top = 1.08 * max(y for _, y in everything) / size or 1
    names = {}
    ends = sorted((rows[-1][1], block, i) for block, series in blocks.items() for i, (_, rows) in enumerate(series))
    for (_, block, i), y in zip(ends, apart([y for y, _, _ in ends], top / 16)):
        names[block, i] = y
    for block, series in list(blocks.items()):
        blocks[f"{block}_names"] = [(label, [(right + 0.04 * (right - left), names[block, i])])
                                    for i, (label, _) in enumerate(series)]
    return Panel(key, source, title, description,
                 {"unit": name, "top": max([top] + [y + top / 30 for y in names.values()]), "left": left, "right": right, **settings},
                 blocks)


def contexts_panel(runs, run, workload, records, key):
    usable = sorted((r for r in records if len(at(r, "time.contexts") or []) > 1), key=median_of)
    chosen = {}  # {cache: {class: its fastest record}}
    for r in usable:
        of_cache = chosen.setdefault((cache(r), r["threads"]), {})
        of_cache.setdefault(next(least for least in BIT_CLASSES if (bits(r) or 0) >= least), r)
    if not chosen:
        return None
    (name, threads), of_cache = max(chosen.items(), key=lambda item: len(item[1]))  # of several, the first one, which is the fastest
    picked = [of_cache[least] for least in BIT_CLASSES if least in of_cache]
    series = [(f"{pool_short(r)} {r['kernel']}", [(p["cells"], p["ns"]) for p in r["time"]["contexts"]]) for r in picked]
    title = titled(runs, run, f"{workload}, {name}" + (f", {threads} threads" if threads > 1 else ""))
    return lines_panel(key, "context", title, f"{title}: " + "; ".join(
        f"{label}: {number(rows[0][1], 'ns')} at {rows[0][0]:.0f} cells, {number(rows[-1][1], 'ns')} at {rows[-1][0]:.0f}"
        for label, rows in series) + ".", {"steps": series}, "ns",
        {"kinds": ", ".join(sorted({at(r, "traffic.kind") for r in picked}))})


def contexts(runs):
    panels = [contexts_panel(runs, run, workload, records, f"context-{i}-{j}") for i, run in enumerate(runs)
              for j, (workload, records) in enumerate(grouped(timed([run]), lambda r: r["workload"]).items())]
    return Figure(
        "context", "Time per step against context, per format",
        "Median time of a step (of the kind with the most operations) against the cells that it reads in one layer. Of formats "
        "with about as many bits (32, 16, 8, 5 to 7, 4, below 3.6) the fastest is drawn, with its fastest kernel, all over "
        "the one cache that has the most of them.",
        "no times by context in these files: their steps are too few, or nothing passed.", "small", [p for p in panels if p])


# ---- heat map ------------------------------------------------------------------------------------------------


def heat_panels(runs, run, first):
    records = timed([run])
    best = fastest(records, race)
    cells = grouped(records, lambda r: (r["kernel"], pool_short(r), cache(r)))
    ratios = {cell: geometric_mean([median_of(r) / median_of(best[race(r)]) for r in group]) for cell, group in cells.items()}
    rows = [p for _, p in sorted({(-(bits(r) or 0), pool_short(r)) for r in records})]
    columns = list(dict.fromkeys(c for _, _, c in cells))
    for i, kernel in enumerate(dict.fromkeys(k for k, _, _ in cells)):
        mine = {(p, c): ratio for (k, p, c), ratio in ratios.items() if k == kernel}
        least = min(mine, key=mine.get)
        ran = [p for p in rows if any((p, c) in mine for c in columns)]
        yield Panel(f"{first}-{i}", "heat", titled(runs, run, kernel),
                    f"{kernel}: median step over the fastest, {len(ran)} pools by {len(columns)} caches; the best is "
                    f"{' in '.join(least)}, {number(mine[least], 'times')}.",
                    {"rows": ran, "columns": columns, "longest": max(map(len, rows))},
                    {"values": [[mine.get((p, c)) for c in columns] for p in ran]})


def heat(runs):
    panels = [panel for i, run in enumerate(runs) for panel in heat_panels(runs, run, f"heat-{i}")]
    return Figure(
        "heat", "Cache × pool × kernel",
        "Median step over that of the fastest combination of the same workload and threads (1: the fastest), as the geometric "
        "mean over the workloads that this cell ran. Pools by bits of a value, most on top (K/V where they differ); an empty cell did not run.",
        "no heat map: no combination that was timed passed.", "small", panels)


# ---- memory --------------------------------------------------------------------------------------------------


def memory_panel(runs, run, workload, records, key):
    usable = [r for r in records if at(r, "memory.timeline")]
    if not usable:
        return None
    by_pool = grouped(usable, pool)
    name = max(by_pool, key=lambda p: (len({cache(r) for r in by_pool[p]}), p == "f16"))
    shown = {c: group[0] for c, group in grouped(by_pool[name], cache).items()}
    held = [(c, [(p["event"], p["held_bytes"]) for p in r["memory"]["timeline"]]) for c, r in shown.items()][:8]
    sharing = grouped(shown.items(), lambda item: max(p["live_bytes"] for p in item[1]["memory"]["timeline"]))
    live = [("live" if len(sharing) == 1 else "live " + "+".join(c for c, _ in same),
             [(p["event"], p["live_bytes"]) for p in same[0][1]["memory"]["timeline"]]) for same in sharing.values()]
    return lines_panel(key, "memory", titled(runs, run, f"{workload}, {name}"), f"{workload}, {name}: most bytes: " + ", ".join(
        f"{c} {number(max(y for _, y in rows), 'bytes')}" for c, rows in held + live) + ".",
        {"held": held, "live": live}, "bytes", {})


def memory(runs):
    panels = [memory_panel(runs, run, workload, records, f"memory-{i}-{j}") for i, run in enumerate(runs)
              for j, (workload, records) in enumerate(grouped(timed([run]), lambda r: r["workload"]).items())]
    return Figure(
        "memory", "Memory over the replay",
        "Bytes that each cache's allocator holds after each event (lines with marks), against the bytes of the rows of live "
        "cells (thick lines, one where all caches agree): what lies between is the price of growth, copies and holes. One "
        "format for each workload, the one that most caches ran.",
        "no timeline of memory in these files.", "small", [p for p in panels if p])


# ---- accuracy of formats -------------------------------------------------------------------------------------

FAMILIES = [("float", r"b?f\d+$"), ("fp8", r"e[45]m[23]"), ("int8", "int8"), ("ggml block", r"i?q\d"),
            ("affine group", r"a\d+g"), ("kivi", "kivi"), ("4-bit float", "mxfp|nvfp"), ("rotated", "tq")]


def family(record):
    sides = {next((name for name, pattern in FAMILIES if re.match(pattern, side)), "other")
             for side in (record["pool_k"], record["pool_v"])}
    return sides.pop() if len(sides) == 1 else "mixed"


def is_frontier(point, points):
    return not any(b <= point[0] and e <= point[1] and (b, e) != point for b, e in points)


def free_places(points, bottom, top):
    """Places for the names of points (x, y, name). A name stands to the left and below, where no better point can lie, and low
    enough to touch no other name. Both axes are logarithmic, x from 1 to 40; text sizes are shares of them, for the size "large"."""
    placed = []
    for x, y, name in sorted(points, key=lambda p: (-p[1], p[0])):
        end, up = math.log(x / 1.08, 40), math.log(y / bottom, top / bottom)
        start = end - 0.0145 * len(name)
        while any(abs(up - other) < 0.042 and start < far and near < end for near, far, other in placed):
            up -= 0.021
        placed.append((start, end, up))
        yield x, y, x / 1.08, bottom * (top / bottom) ** up, name


def formats_panel(key, records, path, title):
    costs = {}  # {(family, pool): (bits, [error of each workload])}
    for (kind, name), group in grouped(records, lambda r: (family(r), pool_short(r))).items():
        errors = [median(at(r, path) for r in same) for same in grouped(group, lambda r: r["workload"]).values()]
        if min(errors) > 0:
            costs[kind, name] = (bits(group[0]), errors)
    if not costs:
        return None
    points = {c: (b, median(errors)) for c, (b, errors) in costs.items()}
    series = [(kind, [(points[c][0], points[c][1], min(costs[c][1]), max(costs[c][1])) for c in group])
              for kind, group in grouped(points, lambda c: c[0]).items()]
    front = sorted((b, e, name) for (_, name), (b, e) in points.items() if is_frontier((b, e), points.values()))
    bottom, top = min(min(e) for _, e in costs.values()) / 10, max(max(e) for _, e in costs.values()) * 4
    places = list(free_places(front, bottom, top))
    return Panel(key, "formats", title, f"{title} against bits of a value; the best for their size: " + ", ".join(
        f"{name} {b:g} bits {number(e)}" for b, e, name in front) + ".", {"bottom": bottom, "top": top},
        {"series": series, "labels": [(name, [(x, y)]) for _, _, x, y, name in places],
         "lifts": [("", [(b, e), (x, y)]) for b, e, x, y, _ in places]})


def formats(runs):
    records = [r for r in timed(runs) if bits(r)]
    panels = []
    for key, path, title in (("formats-l2", "error.format.rel_l2", "relative L2 error of the output"),
                             ("formats-kl", "error.format.kl_mean", "mean KL divergence of the weights")):
        judged = [r for r in records if at(r, path) is not None]
        panels.append(formats_panel(key, judged, path, title))
    return Figure(
        "formats", "Format error against bits per value",
        "What storing K and V costs in accuracy, the attention itself computed exactly: median over the workloads, bars from "
        "least to largest. Bits with their share of scales and zeros, the mean of K and V. Named: formats that no other beats in "
        "both. Formats without any error (f32) have no place on this axis.",
        "no format error in these files.", "large", [p for p in panels if p])


def figures(runs):
    return {f.key: f for f in (make(runs) for make in (roofline, contexts, heat, memory, formats))}
