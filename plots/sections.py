# SPDX-License-Identifier: Apache-2.0
"""What the page says in words and tables. The plots are in figures.py."""
import re

from page import Cell, Column, bullets, code, escape, folded, pairs, paragraph, section, table, tag
from records import (again, alike_but, at, best_of, bits, by_move, cache, differ_in_one, grouped, is_noisy, median_of, pool, timed)
from units import change, count, interval, number

BAD = ("fail", "crash", "timeout")


def numeric(path, unit=""):
    """A cell of the number at `path` of a record."""
    return lambda r: Cell(number(at(r, path), unit), at(r, path))


def time_cell(r):
    median, mad = median_of(r), at(r, "time.mad")
    if median is None or is_noisy(r):
        return Cell("–" if median is None else "noisy", None)
    spread = interval(at(r, "time.low"), at(r, "time.high"), "ns")
    return Cell(number(median, "ns"), median, spread + (f"; MAD {number(mad, 'ns')}" if mad is not None else ""))


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
    """Four lines: passed or failed, how exactly, on which machine, where from."""
    m, n = run.manifest, {status: len(run.with_status(status)) for status in ("pass", "fail", "crash", "timeout", "skip", "counted")}
    bad = sum(n[status] for status in BAD)
    word, sign = (("failed", "✗") if bad else ("passed", "✓") if n["pass"] else ("counted", "–") if n["counted"] else ("nothing ran", "–"))
    lines = [f"{n['pass']} passed, {n['fail']} failed, {n['crash']} crashed, {n['timeout']} timed out, {n['skip']} skipped" +
             (f", {n['counted']} counted." if n["counted"] else ".")]
    judged = [r for r in run.records if r["rho"] is not None]
    if judged:
        worst = max(judged, key=lambda r: r["rho"])
        lines[0] += (f" Largest error over its bound {number(worst['rho'])} (above 1 fails): {worst['workload']}, {cache(worst)}, "
                     f"{pool(worst)}, {worst['kernel']}.")
    lines.append(f"{m['cpu_model']}, {count(m['cores'], 'core')}, {m['isa']}, {number(m['memory_bytes'], 'bytes')}; {m['os']}." +
                 (f" Note: {m['openblas_note']}." if m["openblas_note"] else ""))
    lines.append(f"{m['command']} (commit {m['commit']}, {m['date']})")
    return tag("p", f"{sign} {escape(run.label)}: {word}", class_="verdict " + ("bad" if bad else "good")) + "".join(map(paragraph, lines))


def verdict(runs):
    return tag("div", "".join(map(verdict_one, runs)), id="verdict") + "\n"


def failures(runs):
    bad = [r for run in runs for r in run.with_status(*BAD)]
    columns = where(runs) + [Column("status", "", lambda r: r["status"]),
                             Column("rho", "error over its bound", numeric("rho")),
                             Column("reason", "", lambda r: r["reason"] or "")]
    return "" if not bad else section(
        "failed", "What failed", paragraph("The first failure alone, as its run did it:"), code(again(bad[0])),
        table("failures", "What failed, and why; the button in a row shows and copies its command", columns, bad, "data", again),
        is_open=True)


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
                   table("changes", "Every combination, what moved most first", CHANGES, by_move(single), "data"), is_open=True)


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


# ---- kernels -------------------------------------------------------------------------------------------------


def kernels(runs):
    """Rows of results that differ in the kernel alone; a column for each kernel."""
    rows = [{r["kernel"]: r for r in group} | {"": group[0]} for run in runs for group in alike_but(timed([run]), "kernel")
            if differ_in_one(group)]
    if not rows:
        return ""
    best = {id(row): best_of([r for kernel, r in row.items() if kernel]) for row in rows}

    def cell(kernel):
        def of(row):
            r, fastest = row.get(kernel), best[id(row)]
            if r is None or is_noisy(r):
                return Cell("–" if r is None else "noisy", None)
            share = at(r, "traffic.of_limit")
            words = [] if share is None else [f"{number(share, 'share')} of the limit"]
            if fastest:
                words.append("the best" if r is fastest else f"{number(median_of(r) / median_of(fastest), 'times')} the best")
            return Cell(number(median_of(r), "ns") + (" *" if r is fastest else ""), median_of(r), "; ".join(words))
        return of
    columns = [Column(c.heading, c.meaning, lambda row, c=c: c.cell(row[""])) for c in where(runs) if c.heading != "kernel"]
    columns += [Column(kernel, "median step", cell(kernel)) for kernel in dict.fromkeys(k for row in rows for k in row if k)]
    engines = dict.fromkeys(at(r, "foreign.engine") for row in rows for r in row.values() if at(r, "foreign.calls"))
    return section("kernels-table", "Kernels beside each other", *[paragraph(f"{engine}.") for engine in engines],
                   table("kernels-times", "Median step of each kernel over the same rows; * the best of its row", columns, rows, "data"))


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


KINDS = {"prefill": "", "decode": "", "fork": "decode of branches of one trunk together", "verify": "of a draft tree",
         "fill": "rows stored without queries", "control": "copies, removals, commits"}


def kind_cell(kind):
    def cell(r):
        of = r["time"]["kinds"].get(kind)
        if not of or not of["samples"]:
            return Cell("–", None)
        whole = sum(k["total"] for k in r["time"]["kinds"].values())
        return Cell(number(of["total"] / whole, "share"), of["total"] / whole)
    return cell


def counter_columns(rows):
    names = dict.fromkeys(name for r in rows for name, value in r["counters"].items() if isinstance(value, (int, float)))
    return [Column(name.split(":")[-1], name, lambda r, name=name: Cell(
        "–" if r["counters"].get(name) is None else f"{r['counters'][name]:,}", r["counters"].get(name))) for name in names]


def everything(runs, moved):
    rows = [r for run in runs for r in run.records if r["status"] != "skip"]
    grows = [GROWTH] if {r["growth"] for r in rows} != {"double"} else []
    columns = (where(runs) + grows + ALL[:3] + ([delta_column(moved)] if moved else []) + ALL[3:-1] +
               [Column(f"{kind} steps", f"share of the whole time; {meaning or 'steps of this kind'}", kind_cell(kind))
                for kind, meaning in KINDS.items()] + counter_columns(rows) + ALL[-1:])
    reasons = dict.fromkeys(f"{name}: {why}" for r in rows for name, why in r["counters"].get("unavailable", {}).items())
    return section("all", "Every combination that ran",
                   paragraph("Click a heading to sort. A filter takes words, or a comparison such as “< 50 µs”, “>= 4 MiB” or "
                             "“> 10 %”. The button in a row's first cell shows and copies the command that runs this row again."),
                   table("combinations", f"All {len(rows)} combinations", columns, rows, "data", again) if rows else
                   paragraph("Nothing ran."),
                   folded("What could not be counted, and why", bullets(reasons)) if reasons else "")


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
