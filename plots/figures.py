# SPDX-License-Identifier: Apache-2.0
"""The plots: which there are, and what of the records each shows. draw.py draws them."""
import math
import re
from collections import namedtuple

from records import (alike_but, at, best_of, bits, by_move, cache, complete, differ_in_one, drawn, grouped, median_of, pool,
                     pool_short, quantile, scene_and_context, timed)
from units import change, number, step_of

# A section of the page: its panels, all of one of draw.py's sizes.
Figure = namedtuple("Figure", "key title caption size panels")
# One picture. `source` names its part of plots.gp; blocks: {name: [(label, rows of numbers), …]}; compared: the sets of results which
# the picture sets beside each other.
Panel = namedtuple("Panel", "key source title description settings blocks compared")

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
        "names": [(name, [(settings["left"], i + 0.62)]) for i, name in enumerate(names)]}, [])


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
                  f"right the {MOST_ROWS} that moved most, decided ones first; the table has all.", "small",
                  [p for p in panels if p])


# ---- lines ---------------------------------------------------------------------------------------------------

BINS = 8  # neighbours among the contexts of one record are drawn as so many points


def kernel_types(runs):
    """A line type for each kernel, the same in all plots."""
    return {kernel: i + 1 for i, kernel in enumerate(sorted({r["kernel"] for r in timed(runs)}))}


def lines_panel(key, source, title, description, blocks, unit, settings, compared, log=""):
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
                  **settings}, blocks, compared)


def bins(contexts):
    """(cells, ns, low, high): medians of neighbours, with the middle half of them."""
    n = min(BINS, len(contexts))
    groups = [contexts[i * len(contexts) // n:(i + 1) * len(contexts) // n] for i in range(n)]
    return [(sum(p["cells"] for p in group) / len(group), *(quantile([p["ns"] for p in group], q) for q in (0.5, 0.25, 0.75)))
            for group in groups]


def points(r):
    """(cells, ns, low, high) of a record: of its one context, or medians of neighbours with the middle half of them."""
    contexts = r["time"]["contexts"]
    if len(contexts) == 1:
        median = median_of(r)
        return [(contexts[0]["cells"], median, at(r, "time.low") or median, at(r, "time.high") or median)]
    n = min(BINS, len(contexts))
    groups = [contexts[i * len(contexts) // n:(i + 1) * len(contexts) // n] for i in range(n)]
    return [(sum(p["cells"] for p in group) / len(group), *(quantile([p["ns"] for p in group], q) for q in (0.5, 0.25, 0.75)))
            for group in groups]


def ends_told(series, unit, of="ns"):
    """From where to where each line goes, in words."""
    return "; ".join(f"{label}: {number(rows[0][1], of)} at {rows[0][0]:.0f} {unit}, {number(rows[-1][1], of)} at {rows[-1][0]:.0f}"
                     for label, rows in series) + "."


def threads_told(threads):
    return f", {threads} threads" if threads > 1 else ""


def cells_told(cells):
    return f"{cells // 1024}k" if cells >= 1024 and cells % 1024 == 0 else str(cells)


def limits(records):
    """(cells, ns): the time that the machine's limit allows, where a record of one context knows it."""
    known = {scene_and_context(r)[1]: at(r, "traffic.of_limit") * median_of(r)
             for r in sorted(records, key=median_of, reverse=True) if at(r, "traffic.of_limit")}
    return [("limit", sorted((cells, ns) for cells, ns in known.items() if cells))] if any(known) else []


def kernels_panel(runs, run, records, axis, types, key):
    """One line for each kernel of results that agree in all but kernel and `axis`, which is context or threads."""
    lines = {kernel: sorted(group, key=lambda r: (scene_and_context(r)[1] or 0, r["threads"]))
             for kernel, group in sorted(grouped(records, lambda r: r["kernel"]).items())}
    columns = grouped(records, lambda r: (r["workload"], r["threads"])).values()
    if axis == "threads":
        series = [(kernel, [(r["threads"], *points(r)[0][1:]) for r in group]) for kernel, group in lines.items()]
    else:
        series = [(kernel, [p for r in group for p in points(r)]) for kernel, group in lines.items()]
    if len(lines) < 2 or not all(rows for _, rows in series) or max(len(rows) for _, rows in series) < 2:
        return None
    first = records[0]
    name = scene_and_context(first)[0] if axis == "context" else first["workload"]
    title = titled(runs, run, f"{name}, {pool_short(first)}{threads_told(first['threads']) if axis == 'context' else ''}")
    ticks = " ".join(str(x) for x in sorted({x for _, rows in series for x, *_ in rows}) if isinstance(x, int))
    settings = {"xaxis": "cells read" if axis == "context" else axis, "what": f"a {first['traffic']['kind']} step over {cache(first)}, ",
                "types": types, "ticks": ticks if len(ticks) < 44 else ""}
    return lines_panel(key, "lines", title, f"{title}: {ends_told(series, 'cells' if axis == 'context' else axis)}",
                       {"steps": series, "limit": limits(records) if axis == "context" else []}, "ns", settings,
                       [*lines.values(), *columns], "xy" if axis == "context" else "")


def kernels_panels(runs, axis, key):
    """The panel with the most kernels and points first, of equals the one of f16."""
    types = kernel_types(runs)
    groups = [(run, group) for run in reversed(runs)
              for group in alike_but([r for r in drawn(run) if at(r, "time.contexts")], "kernel", axis)]
    groups.sort(key=lambda g: (-len({r["kernel"] for r in g[1]}) * len({r["workload"] for r in g[1]}), pool(g[1][0]) != "f16"))
    return [kernels_panel(runs, run, group, axis, types, key) for run, group in groups]


def kernels(runs):
    return Figure(
        "kernels", "Kernels as context grows",
        "Median step, one line a kernel, bars are 95 % intervals. Grey: what the machine's limit allows. Noisy results (intervals wider "
        "than half of the median) are not drawn.",
        "small", kernels_panels(runs, "context", "kernels"))


def threads(runs):
    return Figure("threads", "Kernels by threads", "Median time of a step, one line a kernel; bars are 95 % intervals.", "small",
                  kernels_panels(runs, "threads", "threads"))


# ---- winners -------------------------------------------------------------------------------------------------

SHADES = 6  # of a cell: the first is "share not known"


def winners_panel(runs, run, records, key):
    """The best kernel of each format and context, of results that agree in all else."""
    cells = grouped(records, lambda r: (pool_short(r), scene_and_context(r)[1]))
    rows = list(dict.fromkeys(pool_short(r) for r in records))
    columns = sorted({context for _, context in cells})
    if len(columns) < 2 or max(map(len, cells.values())) < 2:
        return None
    shades, names, below, told = {}, [], [], []
    for (name, context), group in cells.items():
        x, y, best = columns.index(context), rows.index(name), best_of(group)
        share = at(best, "traffic.of_limit") if best else None
        shades.setdefault(0 if share is None else 1 + min(SHADES - 2, int(share * (SHADES - 1))), []).append((x, y))
        kernel = best["kernel"] if best else "noisy"
        words = [number(median_of(best), "ns")] + ([] if share is None else [f"{100 * share:.0f} %"]) if best else []
        names.append((kernel, [(x, y - 0.2)]))
        below += [(word, [(x, y + 0.07 + 0.23 * line)]) for line, word in enumerate(words)]
        told.append(f"{name} at {cells_told(context)}: {', '.join([kernel] + words)}")
    scene, first = scene_and_context(records[0])[0], records[0]
    title = titled(runs, run, f"best of {scene}{threads_told(first['threads'])}")
    return Panel(key, "winners", title, f"{title}: {'; '.join(told)}.",
                 {"rows": len(rows), "columns": len(columns), "height": max(340, 56 * len(rows) + 80)},
                 {"cells": [(str(shade), places) for shade, places in sorted(shades.items())], "names": names, "below": below,
                  "down": [(name, []) for name in rows], "along": [(cells_told(context), []) for context in columns]},
                 [group for group in cells.values() if len(group) > 1])


def winners(runs):
    groups = [(run, group) for run in reversed(runs)
              for group in alike_but([r for r in timed([run]) if scene_and_context(r)[1]], "kernel", "pool", "context")]
    groups.sort(key=lambda g: -len(g[1]))
    return Figure(
        "winners", "The best kernel by format and context",
        "The fastest kernel, its time, its share of the machine's limit (stronger colour: nearer), by format and cells read. Noisy: "
        "intervals are too wide to tell.",
        "small", [winners_panel(runs, run, group, "winners") for run, group in groups])


# ---- memory --------------------------------------------------------------------------------------------------

REAL = ("draft-trees", "chat-service", "agent-session")  # histories of real size; the last comes first


def memory_panel(runs, run, records, key):
    shown = sorted(records, key=lambda r: -max(p["held_bytes"] for p in r["memory"]["timeline"]))[:10]
    held = [(r["cache"], [(p["event"], p["held_bytes"]) for p in r["memory"]["timeline"]]) for r in shown]
    least = min(shown, key=lambda r: max(p["live_bytes"] for p in r["memory"]["timeline"]))
    live = [("live", [(p["event"], p["live_bytes"]) for p in least["memory"]["timeline"]])]
    title = titled(runs, run, f"{records[0]['workload']}, {pool_short(records[0])}")
    return lines_panel(key, "memory", title, f"{title}: most bytes: " + ", ".join(
        f"{c} {number(max(y for _, y in rows), 'bytes')}" for c, rows in held + live) + ".",
        {"held": held, "live": live}, "bytes", {"xaxis": "event of the workload"}, [records])


def memory(runs):
    groups = [(run, group) for run in reversed(runs) for group in complete(
        [r for r in run.with_status("pass") if at(r, "memory.timeline")], "cache")]
    groups.sort(key=lambda g: (-REAL.index(w) if (w := g[1][0]["workload"]) in REAL else 1, -len(g[1])))
    return Figure(
        "memory", "Memory of each cache",
        "Bytes that each cache's allocator holds after each event, against the rows of live cells where most are shared (thick): what "
        "lies between is the price of growth, copies and holes.",
        "small", [memory_panel(runs, run, group, "memory") for run, group in groups])


# ---- what a cache saves --------------------------------------------------------------------------------------


def caching_panel(runs, run, records, path, unit, label, title):
    """Lines of `path` by the tokens that are decoded, of results that agree in all but tokens and what `label` says. Where a line is
    0 it is left out: the axis is logarithmic."""
    lines = grouped(records, label)
    series = [(name, sorted((int(r["workload"].split("-")[-1]), at(r, path)) for r in group if at(r, path)))
              for name, group in lines.items()]
    series = [(name, rows) for name, rows in series if len(rows) > 1]
    if not series:
        return None
    title = titled(runs, run, title)
    return lines_panel("caching", "lines", title, f"{title}: {ends_told(series, 'tokens', unit)}", {"steps": series, "limit": []},
                       unit, {"xaxis": "tokens decoded", "what": f"{title}, " if unit else title,
                              "types": {name: i + 1 for i, name in enumerate(lines)},
                              "ticks": " ".join(str(x) for x in sorted({x for _, rows in series for x, *_ in rows if not x & x - 1}))},
                       list(grouped(records, lambda r: r["workload"]).values()), "xy")


def caching(runs):
    panels = []
    for run in reversed(runs):
        counted = [r for r in run.with_status("counted") if re.fullmatch(r"decode-\d+", r["workload"])]
        panels += [caching_panel(runs, run, [r for r in counted if r["growth"] == "double"], "memory.cells_written", "",
                                 lambda r: r["cache"], "token rows computed"),
                   caching_panel(runs, run, [r for r in counted if r["growth"] == "double"], "traffic.flops", "",
                                 lambda r: r["cache"], "operations of attention"),
                   caching_panel(runs, run, [r for r in counted if r["cache"] == "contiguous"], "memory.copied_bytes", "bytes",
                                 lambda r: r["growth"], "bytes that growth copies")]
    return Figure("caching", "What a cache saves",
                  "One layer that decodes n tokens: the work without a cache (recompute) and with one, counted, not timed; and what the "
                  "ways of growing copy (exact: by concatenation at each step).", "small", panels)


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


def formats_panel(runs, run, key, records, path, title):
    costs = {(family(r), pool_short(r)): (bits(r), at(r, path)) for r in records}
    series = [(kind, [costs[c] for c in group]) for kind, group in grouped(costs, lambda c: c[0]).items()]
    front = sorted((b, e, name) for (_, name), (b, e) in costs.items() if is_frontier((b, e), costs.values()))
    bottom, top = min(e for _, e in costs.values()) / 10, max(e for _, e in costs.values()) * 4
    places = list(free_places(front, bottom, top))
    title = titled(runs, run, f"{records[0]['workload']}: {title}")
    return Panel(key, "formats", title, f"{title} against bits of a value; the best for their size: " + ", ".join(
        f"{name} {b:g} bits {number(e)}" for b, e, name in front) + ".", {"bottom": bottom, "top": top},
        {"series": series, "labels": [(name, [(x, y)]) for _, _, x, y, name in places],
         "lifts": [("", [(b, e), (x, y)]) for b, e, x, y, _ in places]}, [records])


def formats(runs):
    """Of the results that agree in all but the format, those of the most formats."""
    panels = []
    for key, path, title in (("formats", "error.format.rel_l2", "relative error (L2)"),
                             ("formats-kl", "error.format.kl_mean", "mean KL of the weights")):
        groups = [(run, group) for run in reversed(runs) for group in complete(
            [r for r in run.with_status("pass") if bits(r) and (at(r, path) or 0) > 0], "pool")]
        panels += [formats_panel(runs, run, key, group, path, title)
                   for run, group in sorted(groups, key=lambda g: -len(g[1]))[:1]]
    return Figure(
        "formats", "Format error against bits per value",
        "What storing K and V costs in accuracy, the attention itself computed exactly, all over one workload, cache and kernel. Bits "
        "with their share of scales and zeros, the mean of K and V. Named: formats that no other beats in both.",
        "square", panels)


MAKERS = (kernels, winners, memory, caching, threads, formats)  # in their order on the page


def comparable(figure):
    """The panels whose sets of results differ in one axis each, no two of one name: kernels, kernels-2, …"""
    panels = [p for p in figure.panels if p and all(len(records) == 1 or differ_in_one(records) for records in p.compared)]
    return figure._replace(panels=[p._replace(key=p.key if i == 0 or p.key != figure.key else f"{p.key}-{i + 1}")
                                   for i, p in enumerate(panels)])


def figures(runs, moved):
    return {f.key: comparable(f) for f in [changes(runs, moved)] + [make(runs) for make in MAKERS]}
