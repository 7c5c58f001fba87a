# SPDX-License-Identifier: Apache-2.0
"""The plots: which there are, and what of the records each shows. draw.py draws them."""
import math
import re
from collections import namedtuple
from statistics import median

from records import (at, bits, by_move, cache, fastest, geometric_mean, grouped, median_of, pool, pool_short, quantile, race, rates, timed)
from units import change, digits, number, step_of

# A section of the page: its panels, all of one of draw.py's sizes, and in words what needs no plot. The page says `absent` if there
# is neither.
Figure = namedtuple("Figure", "key title caption absent size panels words", defaults=((),))
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


# ---- rows with intervals -------------------------------------------------------------------------------------


def rows_panel(key, title, description, names, series, settings, ranges=()):
    """A row for each name, from the top, the name above it. series: [(label, [(row, value, low, high), …]), …] are marks with an
    interval each, ranges: [(row, low, high), …] thin lines below them. Rows count from 0."""
    return Panel(key, "rows", title, description, {"rows": len(names), "height": 36 * len(names) + 120, **settings}, {
        "points": [(label, [(x, i + 1, low, high) for i, x, low, high in rows]) for label, rows in series],
        "ranges": [("", [(low, i + 1, high - low) for i, low, high in ranges])] if ranges else [],
        "names": [(name, [(settings["left"], i + 0.62)]) for i, name in enumerate(names)]})


# ---- before and after ----------------------------------------------------------------------------------------

MOST_ROWS = 16  # of a panel
VERDICT_TYPES = {"SAME": 1, "SLOWER": 2, "FASTER": 3, "UNDECIDED": 8}


def change_panel(key, title, rows, name_of):
    rows = sorted(by_move([r for r in rows if r["ratio"]])[:MOST_ROWS], key=lambda r: -r["ratio"])
    if not rows:
        return None
    percent = [[100 * ((r[side] or r["ratio"]) - 1) for side in ("ratio", "low", "high")] for r in rows]
    least, most = min(0, *[p[0] for p in percent]), max(0, *[p[0] for p in percent])
    room = 0.25 * (most - least) + 5  # longer intervals end at the border
    left, right = max(least - room, -100), most + room
    series = grouped(range(len(rows)), lambda i: rows[i]["verdict"])
    return rows_panel(key, title, f"{title}: " + "; ".join(f"{name_of(r)} {change(r['ratio'])} {r['verdict']}" for r in rows) + ".",
                      [name_of(r) for r in rows], [(verdict, [(i, percent[i][0], max(percent[i][1], left), min(percent[i][2], right))
                                                              for i in group]) for verdict, group in series.items()],
                      {"left": left, "right": right, "log": "", "axis": "change of the median, %", "types": VERDICT_TYPES})


def changes(runs, moved):
    times = [r for r in moved if r["metric"] == "time"]
    axes = [r for r in times if r["workload"] == "*"]
    single = [r for r in times if r["workload"] != "*"]
    panels = [change_panel("change-axes", "kernels and caches", axes,
                           lambda r: f"kernel {r['kernel']}" if r["kernel"] != "*" else f"cache {r['cache']}"),
              change_panel("change-most", "what moved most", single, lambda r: " ".join(
                  [r["workload"], r["cache"], r["pool"].replace("k=", "").replace(",v=", "/"), r["kernel"]] +
                  ([f"{r['threads']} threads"] if r["threads"] != 1 else [])))]
    return Figure("changed", "Before and after",
                  "Change of the median step, new over base, with its interval (99 % for all rows together; one that leaves the plot "
                  "ends at its border). Right of the line: slower. On the left all combinations of a kernel or a cache together, on the "
                  f"right the {MOST_ROWS} that moved most, decided ones first; the table has all.", "nothing to compare.", "small",
                  [p for p in panels if p])


# ---- roofline ------------------------------------------------------------------------------------------------


def limit_labels(limits, what, unit):
    """The names of limits and where they stand. Limits that lie close together share a name."""
    labels = []
    for name, p in sorted(limits, key=lambda limit: limit[1]):
        text = f"{name} {what}{number(p, unit)}"
        if labels and p < 1.4 * labels[-1][1]:
            text = f"{labels.pop()[0]}, {text}"
        labels.append((text, p))
    return labels


def letter(i):
    """A short name for the i-th of many: a, b, … z, then numbers."""
    return "abcdefghijklmnopqrstuvwxyz"[i] if i < 26 else str(i + 1)


def kernel_types(runs):
    """A line type for each kernel, the same in all plots."""
    return {kernel: i + 1 for i, kernel in enumerate(dict.fromkeys(r["kernel"] for r in sorted(timed(runs), key=lambda r: r["kernel"])))}


def joined_letters(marked, width, height):
    """Labels of points (x, y, letter) over logarithmic axes of this width and height: points that lie together share one."""
    labels = []
    for x, y, mark in sorted(marked):
        near = next((l for l in labels if abs(math.log(x / l[0])) < 0.02 * width and abs(math.log(y / l[1])) < 0.03 * height), None)
        if near is None:
            labels.append([x, y, {mark}])
        else:
            near[2].add(mark)
    return [(" ".join(sorted(together)), [(x, y)]) for x, y, together in labels]


def reaches(r):
    """What the combination reaches, for a point's label."""
    return (f"{r['workload']}, {cache(r)}, {pool(r)}, {r['kernel']}: {number(at(r, 'traffic.gflop_per_s'), 'GFLOP/s')}, "
            f"{number(at(r, 'traffic.gb_per_s'), 'GB/s')}" +
            (f", {number(at(r, 'traffic.of_limit'), 'share')} of its limit" if at(r, "traffic.of_limit") else ""))


def roofline_panel(runs, run, threads, records, names, key):
    points = [r for r in fastest(records, lambda r: (r["workload"], r["kernel"])).values()
              if at(r, "traffic.gb_per_s") and at(r, "traffic.gflop_per_s")]
    if not points:
        return None
    tips = list(map(reaches, points))
    series = [(kernel, [(at(r, "traffic.gflop_per_s") / at(r, "traffic.gb_per_s"), at(r, "traffic.gflop_per_s"), i) for i, r in group])
              for kernel, group in grouped(enumerate(points), lambda item: item[1]["kernel"]).items()]
    marked = [(x, y, letter(names.index(points[i]["workload"]))) for _, rows in series for x, y, i in rows]
    xs, ys, _ = zip(*marked)
    machine = rates(run, threads)
    peaks = [(name, p) for name, p in machine.get("peak_gop_per_s", {}).items() if p]
    peak = dict(peaks).get("f32", 0)
    left = min(xs) / 4
    # Leave out levels whose line meets the peak left of the plot.
    slopes = [(level, b) for level, b in machine.get("read_gb_per_s", {}).items() if b and left * b < 0.7 * peak]
    right = max([max(xs) * 2] + [2 * peak / b for _, b in slopes])
    roofs = [(level, [(left, left * b), (peak / b, peak)]) for level, b in slopes]
    roofs += [(name, [(left, p), (right, p)]) for name, p in peaks]
    slope_names = [(text, [(left * 1.06, left * b * 1.28)]) for text, b in limit_labels(slopes, "", "GB/s")]
    peak_names = [(text, [(right / 1.05, p * 1.25)]) for text, p in limit_labels(peaks, "peak ", "Gop/s")]
    bottom, top = min(ys) / 2, 2.5 * max([p for _, p in peaks] + [max(ys)])
    title = titled(runs, run, f"{threads} thread" + "s" * (threads > 1))
    return Panel(key, "roofline", title, f"Roofline at {title}. {'; '.join(tips)}.",
                 {"left": left, "right": right, "bottom": bottom, "top": top,
                  "types": kernel_types(runs), "tips": tips},
                 {"roofs": roofs, "slopes": slope_names, "peaks": peak_names, "points": series,
                  "letters": joined_letters(marked, math.log(right / left), math.log(top / bottom)),
                  "legend": [(f"{letter(i)}: {name}", []) for i, name in enumerate(names)]})


def roofline(runs):
    names = list(dict.fromkeys(r["workload"] for r in timed(runs)))
    panels = [roofline_panel(runs, run, threads, records, names, f"roofline-{i}-{threads}") for i, run in enumerate(runs)
              for threads, records in grouped(timed([run]), lambda r: r["threads"]).items()]
    bare = [run.label for run in runs if not run.manifest["machine"]]
    return Figure(
        "roofline", "Roofline",
        f"Letters: {', '.join(f'{letter(i)} {name}' for i, name in enumerate(names))}. "
        "Work a second against operations for each byte read, of the kind of step with the most operations. Each point is a "
        "workload and a kernel, with its fastest cache and storage format: point at it, or tap it, to read which. Slanted lines: "
        "read bandwidth of each level of the memory; flat lines: multiply-add peaks; both measured at the start of the run with "
        "this number of threads. A point may lie above the line of a far level when its rows fit a nearer one: the columns "
        "“of read” and “of limit” compare each combination with the bandwidth measured at its own working set." +
        (f" No lines for {', '.join(bare)}: the machine was not measured in that run." if bare else ""),
        "no roofline in these files: no combination that was timed passed.", "square", [p for p in panels if p])


# ---- time against context ------------------------------------------------------------------------------------

BIT_CLASSES = [24, 12, 7, 4.9, 3.6, 0]  # least bits of each class; the fastest format of a class is drawn
BINS = 8  # neighbours among the contexts of one record are drawn as so many points


def lines_panel(key, source, title, description, blocks, unit, settings, log=""):
    """Lines of (x, y) or (x, y, low, high), in the unit of the largest value. Axes that `log` names are logarithmic; y is from 0
    otherwise. The lines' names stand in a column beside their ends, in the same order, each with its line's mark."""
    everything = [row for series in blocks.values() for _, rows in series for row in rows]
    size, name = step_of(max(y for _, y, *_ in everything), unit)
    blocks = {block: [(label, [(x, *(y / size for y in ys)) for x, *ys in rows]) for label, rows in series]
              for block, series in blocks.items()}
    values = [y for series in blocks.values() for _, rows in series for _, *ys in rows for y in ys]
    # from an axis to lengths on paper, and back
    (x_to, x_from), (y_to, y_from) = ((math.log, math.exp) if axis in log else (float, float) for axis in "xy")
    left, right = x_to(min(x for x, *_ in everything)), x_to(max(x for x, *_ in everything))
    right = max(right, left + (0.1 if "x" in log else 1))
    bottom = y_to(min(values) / 1.2) if "y" in log else 0
    top = bottom + 1.08 * (y_to(max(values)) - bottom) or 1
    ends = sorted((y_to(rows[-1][1]), block, i) for block, series in blocks.items() for i, (_, rows) in enumerate(series))
    gap = (top - bottom) / 15
    places = {(block, i): bottom + y for (_, block, i), y in zip(ends, apart([y - bottom for y, _, _ in ends], gap))}
    longest = max(len(label) for series in blocks.values() for label, _ in series)
    for block, series in list(blocks.items()):
        blocks[f"{block}_names"] = [(label, [(x_from(right + 0.03 * (right - left)), y_from(places[block, i]))])
                                    for i, (label, _) in enumerate(series)]
    share = min(0.55, 0.05 + 0.0165 * longest)  # of the width, for the names
    return Panel(key, source, title, description,
                 {"bottom": y_from(bottom), "top": y_from(max([top] + [y + gap / 2 for y in places.values()])), "left": x_from(left),
                  "end": x_from(right + (right - left) * share / (1 - share)), "log": log, "yaxis": f"{settings.pop('what', '')}{name}",
                  **settings}, blocks)


def bins(contexts):
    """(cells, ns, low, high): medians of neighbours, with the middle half of them."""
    n = min(BINS, len(contexts))
    groups = [contexts[i * len(contexts) // n:(i + 1) * len(contexts) // n] for i in range(n)]
    return [(sum(p["cells"] for p in group) / len(group), *(quantile([p["ns"] for p in group], q) for q in (0.5, 0.25, 0.75)))
            for group in groups]


def ends_told(series):
    """From where to where each line goes, in words."""
    return "; ".join(f"{label}: {number(rows[0][1], 'ns')} at {rows[0][0]:.0f} cells, {number(rows[-1][1], 'ns')} at {rows[-1][0]:.0f}"
                     for label, rows in series) + "."


def threads_told(threads):
    return f", {threads} threads" if threads > 1 else ""


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
    series = [(f"{pool_short(r)} {r['kernel']}", bins(r["time"]["contexts"])) for r in picked]
    title = titled(runs, run, f"{workload}, {name}{threads_told(threads)}")
    return lines_panel(key, "lines", title, f"{title}: {ends_told(series)}", {"steps": series}, "ns",
                       {"xaxis": "cells read in a layer", "what": f"a {picked[0]['traffic']['kind']} step, "})


def contexts(runs):
    panels = [contexts_panel(runs, run, workload, records, f"context-{i}-{j}") for i, run in enumerate(runs)
              for j, (workload, records) in enumerate(grouped(timed([run]), lambda r: r["workload"]).items())]
    return Figure(
        "context", "Time per step against context, per format",
        "Median time of a step (of the kind with the most operations) against the cells that it reads in one layer; bars hold the "
        "middle half of the steps around it. Of formats with about as many bits (32, 16, 8, 5 to 7, 4, below 3.6) the fastest is "
        "drawn, with its fastest kernel, all over the one cache that has the most of them.",
        "no times by context in these files: their steps are too few, or nothing passed.", "small", [p for p in panels if p])


# ---- kernels as context grows --------------------------------------------------------------------------------


def shape(record):
    """Workloads whose names differ in numbers alone are one workload at several sizes."""
    return re.sub(r"\d+", "#", record["workload"])


def kind_point(r):
    """(cells, ns, low, high) of the kind of step with the most operations, with the interval of its median."""
    of_kind, cells = r["time"]["kinds"][r["traffic"]["kind"]], [p["cells"] for p in r["time"]["contexts"]]
    return (sum(cells) / len(cells), of_kind["median"], of_kind["low"] or of_kind["median"], of_kind["high"] or of_kind["median"])


def growth_panel(runs, run, threads, records, key):
    usable = [r for r in records if at(r, "time.contexts")]
    workloads = list(dict.fromkeys(r["workload"] for r in usable))
    # the format that most kernels ran over; of equals the one of the most workloads, then f16, then the first
    by_pool = grouped(usable, pool)
    of_pool = lambda p: (len({r["kernel"] for r in by_pool[p]}), len({r["workload"] for r in by_pool[p]}), p == "f16")
    name = max(by_pool, key=of_pool, default=None)
    if name is None or of_pool(name)[0] < 2:
        return None
    picked = grouped(fastest(by_pool[name], lambda r: (r["workload"], r["kernel"])).values(), lambda r: r["kernel"])
    several = len(workloads) > 1
    series = [(kernel, sorted(map(kind_point, group)) if several else bins(group[0]["time"]["contexts"]))
              for kernel, group in sorted(picked.items())]
    what = f"{workloads[0]} and {len(workloads) - 1} more" if several else workloads[0]
    title = titled(runs, run, f"{what}, {name}{threads_told(threads)}")
    kinds = ", ".join(dict.fromkeys(r["traffic"]["kind"] for group in picked.values() for r in group))
    return lines_panel(key, "lines", title, f"{title}: {ends_told(series)}", {"steps": series}, "ns",
                       {"xaxis": "cells read in a layer", "what": f"a {kinds} step, ", "types": kernel_types(runs)}, "xy" if several else "y")


def growth(runs):
    panels = [growth_panel(runs, run, threads, records, f"growth-{i}-{j}") for i, run in enumerate(runs)
              for j, ((_, threads), records) in enumerate(grouped(timed([run]), lambda r: (shape(r), r["threads"])).items())]
    return Figure(
        "growth", "Kernels as context grows",
        "One line for each kernel, all over the storage format that most of them ran, each with its fastest cache: which is "
        "lower is faster. Workloads whose names differ in numbers alone (decode-1k, decode-4k) are points of one plot, "
        "and bars are the 95 % intervals of the medians; otherwise points are the steps of one workload, and bars "
        "hold the middle half of the steps around a point.",
        "no two kernels ran over one workload and format.", "small", [p for p in panels if p])


# ---- threads -------------------------------------------------------------------------------------------------


def threads_panel(runs, run, key):
    usable = [r for r in timed([run]) if r["speedup"]]
    if not usable:
        return None
    least = min(r["threads"] for r in usable)
    series = []
    for kernel, group in sorted(grouped(usable, lambda r: r["kernel"]).items()):
        at_threads = {t: [r["speedup"] for r in same] for t, same in sorted(grouped(group, lambda r: r["threads"]).items())}
        series.append((kernel, [(t, *(quantile(ratios, q) for q in (0.5, 0.25, 0.75))) for t, ratios in at_threads.items()]))
    title = titled(runs, run, f"speed-up over {least} thread" + "s" * (least > 1))
    told = "; ".join(f"{kernel} {', '.join(f'{digits(y)} times at {t}' for t, y, *_ in rows[1:])}" for kernel, rows in series)
    most = max(r["threads"] for r in usable)
    ideal = [("ideal", [(t, t / least, t / least, t / least) for t in (least, most)])]
    return lines_panel(key, "lines", title, f"{title}: {told}.", {"steps": series + ideal}, "times",
                       {"xaxis": "threads", "what": "speed-up, ", "types": {**kernel_types(runs), "ideal": 8}})


def threads(runs):
    panels = [threads_panel(runs, run, f"threads-{i}") for i, run in enumerate(runs)]
    return Figure("threads", "Speed-up by threads",
                  "Median step with the fewest threads over that with more, of the same combination: the median over all combinations "
                  "of a kernel, bars hold their middle half. The table of every combination has each one's.",
                  "no combination ran with several numbers of threads.", "small", [p for p in panels if p])


# ---- spread --------------------------------------------------------------------------------------------------


def spread_panel(runs, run, workload, records, key):
    shown = sorted(fastest(records, lambda r: (r["kernel"], r["threads"])).values(), key=median_of)[:MOST_ROWS]
    names = [f"{r['kernel']}, {cache(r)}, {pool_short(r)}{threads_told(r['threads'])}" for r in shown]
    t = [r["time"] for r in shown]
    size, unit = step_of(max(x["max"] for x in t), "ns")
    medians = [(i, x["median"] / size, (x["low"] or x["median"]) / size, (x["high"] or x["median"]) / size) for i, x in enumerate(t)]
    far = [(i, *3 * [x["p99"] / size]) for i, x in enumerate(t)]
    title = titled(runs, run, workload)
    left, right = min(x["min"] for x in t) / size, max(x["max"] for x in t) / size
    return rows_panel(key, title, f"{title}: " + "; ".join(
        f"{name}: median {number(x['median'], 'ns')}, p99 {number(x['p99'], 'ns')}, {number(x['min'], 'ns')} to {number(x['max'], 'ns')}"
        for name, x in zip(names, t)) + ".", names, [("median, its interval", medians), ("p99", far)],
        {"left": left / 1.2, "right": right * 1.2, "log": "x", "axis": f"a step, {unit}"},
        [(i, x["min"] / size, x["max"] / size) for i, x in enumerate(t)])


def spread(runs):
    panels = [spread_panel(runs, run, workload, records, f"spread-{i}-{j}") for i, run in enumerate(runs)
              for j, (workload, records) in enumerate(grouped(timed([run]), lambda r: r["workload"]).items())]
    return Figure("spread", "Distribution of the steps",
                  "From the shortest to the longest step (thin line), the median with its 95 % interval, and the 99th percentile. Of "
                  "each kernel and number of threads the fastest combination.", "nothing that was timed passed.", "small", panels)


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
        {"held": held, "live": live}, "bytes", {"xaxis": "event of the workload"})


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
    enough to touch no other name. Both axes are logarithmic, x from 1 to 40; text sizes are shares of them, for the size "square"."""
    placed = []
    for x, y, name in sorted(points, key=lambda p: (-p[1], p[0])):
        end, up = math.log(x / 1.08, 40), math.log(y / bottom, top / bottom)
        start = end - 0.02 * len(name)
        while any(abs(up - other) < 0.04 and start < far and near < end for near, far, other in placed):
            up -= 0.02
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
        "no format error in these files.", "square", [p for p in panels if p])


# How many marks a panel has, of those that tell something.
MARKS = {"roofline": "points", "rows": "names", "lines": "steps", "memory": "held", "formats": "series"}


def marks(panel):
    if panel.source == "heat":
        return sum(value is not None for line in panel.blocks["values"] for value in line)
    return sum(len(rows) for _, rows in panel.blocks[MARKS[panel.source]])


def split(figure):
    """A plot of one point says no more than the number: its description takes its place."""
    return figure._replace(panels=[p for p in figure.panels if marks(p) > 1],
                           words=[p.description for p in figure.panels if marks(p) == 1])


MAKERS = (roofline, growth, contexts, threads, spread, heat, memory, formats)  # in their order on the page


def figures(runs, moved):
    return {f.key: split(f) for f in [changes(runs, moved)] + [make(runs) for make in MAKERS]}
