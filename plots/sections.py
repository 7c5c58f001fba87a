# SPDX-License-Identifier: Apache-2.0
"""What the page says in words and tables. The plots are in figures.py."""
import re

from page import Cell, Column, bullets, code, escape, folded, pairs, paragraph, section, table, tag
from records import (again, at, bits, by_move, cache, fastest, grouped, is_timed, median_of, pool, race, rates, resolution, timed)
from units import change, count, interval, number

BAD = ("fail", "crash", "timeout")


def numeric(path, unit=""):
    """A cell of the number at `path` of a record."""
    return lambda r: Cell(number(at(r, path), unit), at(r, path))


def time_cell(r):
    median, mad = median_of(r), at(r, "time.mad")
    if median is None:
        return Cell("–", None)
    spread = interval(at(r, "time.low"), at(r, "time.high"), "ns")
    return Cell(number(median, "ns"), median, spread + (f"; MAD {number(mad, 'ns')}" if mad is not None else ""))


def ratio_column(best):
    def cell(r):
        ratio = median_of(r) / median_of(best[race(r)]) if is_timed(r) else None
        return Cell(number(ratio, "times"), ratio)
    return Column("to best", "median over the fastest median of the same workload and threads", cell)


WHERE = [
    Column("workload", "", lambda r: r["workload"]),
    Column("cache", "", lambda r: r["cache"]),
    Column("pool", "storage format of K and V", pool),
    Column("kernel", "", lambda r: r["kernel"]),
    Column("threads", "", lambda r: Cell(str(r["threads"]), r["threads"])),
]
FILE = Column("file", "", lambda r: r["run"].label)
GROWTH = Column("growth", "how pools get memory", lambda r: r["growth"])
TIME = Column("median step", "median time of an attending step; below it its 95 % interval, and the median absolute "
              "deviation of the steps", time_cell)
LIMIT = Column("of limit", "time that the nearer of read bandwidth and f32 peak would allow, over the time taken",
               numeric("traffic.of_limit", "share"))
READ = Column("of read", "fraction of the read bandwidth measured at the same working set", numeric("traffic.of_read", "share"))


def where(runs):
    return ([FILE] if len(runs) > 1 else []) + WHERE


# ---- verdict -------------------------------------------------------------------------------------------------


def verdict_one(run):
    n = {status: len(run.with_status(status)) for status in ("pass", "fail", "crash", "timeout", "skip")}
    bad = sum(n[status] for status in BAD)
    word, sign = (("failed", "✗") if bad else ("passed", "✓") if n["pass"] else ("nothing ran", "–"))
    counted = (f"{n['pass']} passed, {n['fail']} failed, {n['crash']} crashed, {n['timeout']} timed out, "
               f"{n['skip']} skipped")
    facts = []
    judged = [r for r in run.records if r["rho"] is not None]
    if judged:
        worst = max(judged, key=lambda r: r["rho"])
        facts.append(f"Largest rho {number(worst['rho'])} (error over the bound derived for it; above 1 fails): "
                     f"{worst['workload']}, {cache(worst)}, {pool(worst)}, {worst['kernel']}.")
    rows = [sum(at(r, f"error.{key}") or 0 for r in run.records) for key in ("checked_rows", "total_rows")]
    if rows[1]:
        seen = sum(max(at(r, "error.checked_rows"), at(r, "error.looked.opinion") or 0) for r in run.records)
        facts.append(f"Rows judged by the bound of their own sums: {number(rows[0] / rows[1], 'share')} of {rows[1]}; "
                     f"by that or by a bound from above: {number(seen / rows[1], 'share')}.")
    known = resolution(run)
    facts.append("How far combinations differ from themselves: unavailable: no null comparisons in this file." if known is None
                 else f"99 % of comparisons of a combination with itself stay below {number(known, 'share')}.")
    if run.manifest["openblas_note"]:
        facts.append(f"Note: {run.manifest['openblas_note']}.")
    head = tag("p", f"{sign} {escape(run.label)}: {word}", class_="verdict " + ("bad" if bad else "good"))
    return head + paragraph(counted + ".") + bullets(facts)


def verdict(runs):
    bad = [r for run in runs for r in run.with_status(*BAD)]
    columns = where(runs) + [Column("status", "", lambda r: r["status"]),
                             Column("rho", "error over its bound", numeric("rho")),
                             Column("reason", "", lambda r: r["reason"] or "")]
    failures = [] if not bad else [
        paragraph("The first failure alone, as its run did it:"), code(again(bad[0])),
        table("failures", "What failed, and why; the button in a row shows and copies its command", columns, bad, "data", again)]
    return section("verdict", "Verdict", *map(verdict_one, runs), *failures)


# ---- before and after ----------------------------------------------------------------------------------------

VERDICTS_OF_TIME = ("SLOWER", "FASTER", "SAME", "UNDECIDED")
UNITS = {"time": "ns", "rho": ""}  # of what is compared; everything else is bytes


def change_cell(row):
    if row["ratio"] is None:
        return Cell("–", None)
    low, high = row["low"], row["high"]
    return Cell(change(row["ratio"]), row["ratio"] - 1, "" if low is None or high is None else f"{change(low)} to {change(high)}")


def side_cell(side):
    return lambda row: Cell(number(row[side], UNITS.get(row["metric"], "bytes")), row[side])


CHANGE = Column("change", "new over base; below it the interval, which holds for all rows together (99 %)", change_cell)
CHANGES = [Column("verdict", "", lambda row: row["verdict"])] + [
    Column(key, "", lambda row, key=key: row[key]) for key in ("workload", "cache", "pool", "kernel")] + [
    Column("threads", "", lambda row: Cell(str(row["threads"]), row["threads"])),
    Column("growth", "how pools get memory", lambda row: "" if row["growth"] == "double" else row["growth"]),
    Column("of", "what is compared", lambda row: row["metric"]),
    Column("before", "", side_cell("base")), Column("after", "", side_cell("new")), CHANGE,
    Column("reason", "", lambda row: row["reason"] or "")]


def changed(runs, moved, plots):
    """What moved between two files. `plots` is the figure of it."""
    if not moved:
        return ""
    single = [row for row in moved if row["workload"] != "*"]
    verdicts = grouped(single, lambda row: row["verdict"])
    worse = sum(row["regression"] == "yes" for row in moved)
    open_, all_ = (sum(row["verdict"] in which for row in single) for which in (("UNDECIDED",), VERDICTS_OF_TIME))
    word = (f"✗ {count(worse, 'regression')}" if worse else f"– {open_} of {all_} undecided, nothing else got worse" if open_ else
            "✓ nothing got worse")
    head = tag("p", escape(f"{word}, {runs[0].label} to {runs[1].label}"), class_="verdict " + ("bad" if worse else "" if open_ else "good"))
    counts = ", ".join(f"{len(rows)} {verdict}" for verdict, rows in sorted(verdicts.items(), key=lambda item: (-len(item[1]), item[0])))
    axes = [row for row in moved if row["workload"] == "*"]
    columns = [Column("verdict", "", lambda row: row["verdict"]),
               Column("all of", "", lambda row: f"kernel {row['kernel']}" if row["kernel"] != "*" else f"cache {row['cache']}"),
               CHANGE, Column("reason", "", lambda row: row["reason"] or "")]
    return section("changed", "Before and after", head, paragraph(counts + ". Judged as `kvbench compare` does: a time is UNDECIDED "
                   "where its interval allows both no change and more than 5 %."), plots,
                   table("axes", "Each kernel and each cache over all its combinations", columns, by_move(axes), "data") if axes else "",
                   table("changes", "Every combination, what moved most first", CHANGES, by_move(single), "data"))


# ---- machine -------------------------------------------------------------------------------------------------


def machine_one(run, i):
    m = run.manifest
    facts = [("processor", m["cpu_model"]), ("cores", f"{m['cores']}, {m['threads_max']} threads at most"),
             ("memory", number(m["memory_bytes"], "bytes")), ("system", m["os"]),
             ("instruction sets", f"{m['isa']} used; the CPU has {' '.join(m['cpu_features'])}"),
             ("OpenBLAS", f"{m['openblas_version']}; core {m['openblas_core']}; {m['openblas_threads']} of its own threads"),
             ("tuning", m.get("tuning", "built-in"))]
    kinds = [("read_gb_per_s", "read", "GB/s"), ("triad_gb_per_s", "triad", "GB/s"), ("peak_gop_per_s", "multiply-add", "Gop/s")]
    rows = [(f"{name} {what}", key, what, unit) for key, name, unit in kinds for what in (m["machine"][0][key] if m["machine"] else [])]
    columns = [Column("measured", "", lambda row: row[0])]
    columns += [Column(f"{rate['threads']} thread" + "s" * (rate["threads"] > 1), "", lambda row, rate=rate: Cell(
        number(rate[row[1]][row[2]], row[3]), rate[row[1]][row[2]])) for rate in m["machine"]]
    measured = table(f"rates-{i}", f"{run.label}: bandwidth by level and multiply-add peak by type, measured at the start of the run",
                     columns, rows, "data")
    return (pairs(f"machine-{i}", f"{run.label}: the machine", facts) +
            (measured if rows else paragraph(f"{run.label}: bandwidths and peaks unavailable: not measured in this run.")))


def machine(runs):
    return section("machine", "Machine", *[machine_one(run, i) for i, run in enumerate(runs)])


# ---- what is fast, what is slow ------------------------------------------------------------------------------

# By bits of a stored value. Formats of fewer bits are faster but less exact, so each class has its own winner.
CLASSES = [(16, "16 bits or more"), (7, "7 to 9 bits"), (0, "below 7 bits")]


def bits_class(r):
    return next(name for least, name in CLASSES if (bits(r) or 0) >= least)


def winners(runs):
    records = timed(runs)
    best = fastest(records, race)
    rows = list(fastest(records, lambda r: race(r) + (bits_class(r),)).values())
    order = [name for _, name in CLASSES]
    rows.sort(key=lambda r: (race(r), order.index(bits_class(r))))
    columns = where(runs)[:-4] + [Column("format class", "", bits_class)] + where(runs)[-4:] + [
        TIME, ratio_column(best), LIMIT,
        Column("format error", "relative L2 error of the output that storage alone causes", numeric("error.format.rel_l2")),
        Column("peak memory", "the most bytes the cache's allocator held", numeric("memory.allocator_peak", "bytes"))]
    body = table("winners", "The fastest combination of each workload and class of formats", columns, rows, "data")
    return section("fastest", "Fastest per workload", body if rows else paragraph("No combination that was timed passed."))


# ---- beside the engines of others ------------------------------------------------------------------------------

YARDSTICKS = ("openblas", "reference")


def beside(runs):
    """Kernels that call others' engines, OpenBLAS and the fastest of ours, over the same rows. None: no such engine ran."""
    best = fastest(timed(runs), lambda r: (race(r) + (pool(r),), r["kernel"]))
    foreign = list(dict.fromkeys(kernel for (_, kernel), r in best.items() if at(r, "foreign.calls")))
    rows = {}
    for (place, kernel), r in best.items():
        row = rows.setdefault(place, {})
        key = kernel if kernel in foreign or kernel == "openblas" else None if kernel in YARDSTICKS else "ours"
        if key and (key not in row or median_of(r) < median_of(row[key])):
            row[key] = r
    rows = [dict(row, run=row["ours"]["run"]) for row in rows.values() if "ours" in row and any(k in row for k in foreign)]
    if not rows:
        return None

    def cell(key):
        def of(row):
            if key not in row:
                return Cell("–", None)
            ratio = median_of(row[key]) / median_of(row["ours"])
            share = at(row[key], "traffic.of_limit")
            return Cell(number(share, "share") if share is not None else number(median_of(row[key]), "ns"), share,
                        f"{row[key]['kernel']}, {number(median_of(row[key]), 'ns')}" if key == "ours"
                        else f"{number(ratio, 'times')} the time of ours")
        return of
    columns = [Column(c.heading, c.meaning, lambda row, c=c: c.cell(row["ours"])) for c in where(runs)
               if c.heading not in ("cache", "kernel")]
    columns += [Column(key, "share of the machine's limit that was reached; below it the time", cell(key))
                for key in ["ours"] + foreign + ["openblas"]]
    engines = dict.fromkeys(at(row[k], "foreign.engine") for row in rows for k in foreign if k in row)
    return section("beside", "Beside others' engines", paragraph("; ".join(engines) + "."), table(
        "beside-table", "Ours: the fastest kernel of kvbench for these rows, in whichever cache", columns, rows, "data"))


def slow(runs):
    records = timed(runs)
    if not records:
        return section("slow", "Slowest and least efficient", paragraph("No combination that was timed passed."))
    best = fastest(records, race)
    columns = where(runs) + [TIME, ratio_column(best), LIMIT, READ]
    slowest = sorted(records, key=median_of, reverse=True)[:10]
    limited = [r for r in records if at(r, "traffic.of_limit") is not None]
    least = [r for group in grouped(limited, lambda r: r["kernel"]).values()
             for r in sorted(group, key=lambda r: at(r, "traffic.of_limit"))[:3]]
    return section("slow", "Slowest and least efficient",
                   table("slowest", "The ten longest median steps", columns, slowest, "data"),
                   table("least", "Of each kernel, the three combinations farthest from the machine's limit", columns, least, "data")
                   if least else paragraph("Fractions of the limit unavailable: the machine was not measured."))


# ---- kinds of steps, counters --------------------------------------------------------------------------------

KINDS = {"prefill": "", "decode": "", "fork": "decode of branches of one trunk together", "verify": "of a draft tree",
         "fill": "rows stored without queries", "control": "copies, removals, commits"}


def kind_cell(kind):
    def cell(r):
        of = r["time"]["kinds"].get(kind)
        if not of or not of["samples"]:
            return Cell("–", None)
        whole = sum(k["total"] for k in r["time"]["kinds"].values())
        return Cell(number(of["median"], "ns"), of["median"], f"p99 {number(of['p99'], 'ns')}; {number(of['total'] / whole, 'share')} of all")
    return cell


def of_kernels(runs):
    """The fastest combination of each workload, kernel and number of threads."""
    return sorted(fastest(timed(runs), lambda r: race(r) + (r["kernel"],)).values(), key=lambda r: (r["run"].is_after, race(r), median_of(r)))


def kinds(runs):
    rows = of_kernels(runs)
    columns = where(runs) + [Column(kind, meaning or None, kind_cell(kind)) for kind, meaning in KINDS.items()]
    return section("kinds", "Time by kind of step", table(
        "kinds-table", "Median of each kind of step; below it p99, and the share of the whole time. Of each kernel the fastest "
        "combination", columns, rows, "data") if rows else paragraph("Nothing that was timed passed."))


def counters(runs):
    rows = of_kernels(runs)
    names = list(dict.fromkeys(name for r in rows for name, value in r["counters"].items() if isinstance(value, (int, float))))
    missing = grouped([(name, why, r["run"].label) for r in rows for name, why in r["counters"].get("unavailable", {}).items()],
                      lambda item: item[:2])
    columns = where(runs) + [Column(name.split(":")[-1], name, lambda r, name=name: Cell(
        "–" if r["counters"].get(name) is None else f"{r['counters'][name]:,}", r["counters"].get(name))) for name in names]
    reasons = [f"{name}: {why}" for name, why in missing]
    return section("counters", "Counters", table(
        "counters-table", "What was counted over all timed steps. Of each kernel the fastest combination", columns, rows, "data")
        if names else paragraph("Nothing was counted."), *([folded("What could not be counted, and why", bullets(reasons))] if reasons else []))


# ---- everything ----------------------------------------------------------------------------------------------

ALL = [
    Column("status", "", lambda r: r["status"]),
    Column("rho", "largest error over its bound; above 1 fails", numeric("rho")),
    TIME,
    Column("p99", "99th percentile of the steps; below it the longest", lambda r: Cell(
        number(at(r, "time.p99"), "ns"), at(r, "time.p99"),
        "" if at(r, "time.max") is None else f"max {number(at(r, 'time.max'), 'ns')}")),
    Column("steps", "samples; below them the passes", lambda r: Cell(
        str(at(r, "time.samples")), at(r, "time.samples"), count(at(r, "time.passes") or 0, "pass", "passes"))
        if at(r, "time.samples") else Cell("–", None)),
    Column("null", "difference from itself, between passes and between processes", numeric("time.null_difference", "share")),
    Column("rate", "bytes read a second, by the kind of step with the most operations", numeric("traffic.gb_per_s", "GB/s")),
    Column("work", "multiplies and adds a second, likewise", numeric("traffic.gflop_per_s", "GFLOP/s")),
    READ, LIMIT,
    Column("speed-up", "over the same combination with the fewest threads", numeric("speedup", "times")),
    Column("peak memory", "the most bytes the cache's allocator held", numeric("memory.allocator_peak", "bytes")),
    Column("used", "bytes of the most cells ever live over the most bytes reserved", numeric("memory.utilisation", "share")),
    Column("bits", "of a stored value, K and V alike", lambda r: Cell(number(bits(r)), bits(r))),
    Column("format error", "relative L2 error of the output that storage alone causes", numeric("error.format.rel_l2")),
    Column("KL", "mean divergence of the attention weights, by storage alone", numeric("error.format.kl_mean")),
    Column("reason", "", lambda r: r["reason"] or ""),
]


def delta_column(moved):
    """The change of a record's time, beside the records of the second file."""
    key = ("workload", "cache", "pool", "kernel", "threads", "growth")
    times = {tuple(row[word] for word in key): row for row in moved if row["metric"] == "time"}

    def cell(r):
        row = r["run"].is_after and times.get((r["workload"], r["cache"], pool(r), r["kernel"], r["threads"], r["growth"]))
        return change_cell(row) if row else Cell("–", None)
    return Column("change", "of the median since the first file; below it the interval", cell)


def everything(runs, moved):
    rows = [r for run in runs for r in run.records if r["status"] != "skip"]
    grows = [GROWTH] if {r["growth"] for r in rows} != {"double"} else []
    best = fastest(timed(runs), race)
    columns = where(runs) + grows + ALL[:3] + ([delta_column(moved)] if moved else []) + [ratio_column(best)] + ALL[3:]
    return section("all", "Every combination that ran",
                   paragraph("Click a heading to sort. A filter takes words, or a comparison such as “< 50 µs”, “>= 4 MiB” or "
                             "“> 10 %”. The button in a row's first cell shows and copies the command that runs this row again."),
                   table("combinations", f"All {len(rows)} combinations", columns, rows, "data", again) if rows else
                   paragraph("Nothing ran."))


def reason_of(record):
    """The reason without the line, the pool and the cache, so that records with the same reason make one group."""
    reason = re.sub(r"^line \d+: ", "", record["reason"] or "no reason given")
    reason = re.sub(f"^cache {re.escape(record['cache'])} ", "the cache ", reason)
    for name in (record["pool_k"], record["pool_v"]):
        reason = re.sub(rf"(?<!\S){re.escape(name)}(: | )", "", reason)
    return reason


def skipped(runs):
    rows = [r for run in runs for r in run.with_status("skip")]
    parts = []
    for (label, reason), group in sorted(grouped(rows, lambda r: (r["run"].label, reason_of(r))).items(),
                                         key=lambda item: -len(item[1])):
        lists = [f"{what}: {', '.join(dict.fromkeys(map(get, group)))}"
                 for what, get in (("workloads", lambda r: r["workload"]), ("caches", cache), ("pools", pool),
                                   ("kernels", lambda r: r["kernel"]))]
        head = (f"{label}: " if len(runs) > 1 else "") + f"{reason} ({count(len(group), 'combination')})"
        parts.append(folded(head, bullets(lists)))
    return section("skipped", "Skipped, by reason", *(parts or [paragraph("Nothing was skipped.")]))


def reproduce(runs):
    parts = []
    for i, run in enumerate(runs):
        m = run.manifest
        facts = [("kvbench", f"{m['version']}, commit {m['commit']}"), ("compiler", f"{m['compiler']}, {m['flags']}"),
                 ("suite", m["suite"]), ("seed", f"{m['seed']} (0: what each trace says)"), ("date", m["date"]),
                 ("OpenBLAS core", m["openblas_core"]), ("records", run.path)]
        parts += [pairs(f"origin-{i}", f"{run.label}: where the numbers come from", facts),
                  code(f"git checkout {m['commit']} && make\n{m['command']}")]
    return section("reproduce", "How to reproduce", *parts)
