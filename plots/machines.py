# SPDX-License-Identifier: Apache-2.0
"""Machines that `kvbench bench --targets --record-machine` was run on, a record a line: what each reached, side by side."""
import json
import os

from page import Cell, Column, paragraph, section, table

SCHEMA = "kvbench.machines/1"
# Maker and family of the CPU, and its models, from..to: by AMD's and Intel's own lists.
CPUS = [("AuthenticAMD 25", [(0x00, 0x0F, "Zen 3"), (0x10, 0x1F, "Zen 4"), (0x20, 0x5F, "Zen 3"), (0x60, 0xAF, "Zen 4")]),
        ("AuthenticAMD 26", [(0x00, 0xFF, "Zen 5")]),
        ("GenuineIntel 6", [(106, 108, "Ice Lake"), (143, 143, "Sapphire Rapids"), (207, 207, "Emerald Rapids"), (173, 174, "Granite Rapids")])]
ABOUT = ("8 KV heads of 128 channels. Of each work the best kernel's share of the nearer limit (reading the same bytes, or multiplying; "
         "scans read and write states), with the kernel where it is not flash or scan; narrower numbers have more lanes, so that a share "
         "of the f32 peak may pass 1. A gain is speed over the same call without. Calls are in cycles. A machine is measured whole, so "
         "columns differ in the machine and the commit: they tell what was reached, not which is faster.")


def cpu_name(record):
    cpu, _, model = record["cpu_id"].rpartition(" ")
    for known, models in CPUS:
        for low, high, name in models:
            if cpu == known and low <= int(model) <= high:
                return name
    return record.get("cpu_model") or record["cpu_id"] or "a CPU without a name"


def is_met(value, target):
    """Does a figure meet a target as ">= 0.90", ">= 5.00x" or "<= 400"?"""
    if not target:
        return False
    sign, wanted = target.split()
    return value >= float(wanted.rstrip("x")) if sign == ">=" else value <= float(wanted.rstrip("x"))


def reached(record):
    """{(work, of what): (text, kernel, target, value)}: of each work the largest share, of each gain the largest, of calls the cycles."""
    found, best = {}, {}
    for row in record["works"]:
        kernel, _, gain = row["kernel"].partition(", gain over ")
        if gain:
            key, value = (row["work"], "over the same: " + gain), row.get("ratio")
        elif str(row.get("rate", "")).endswith(" cycles"):
            key, value = (row["work"], kernel), row["rate"].split()[0]
        elif "," in kernel:  # a way that is there to be compared with
            continue
        else:
            key, value = (row["work"], "of the limit"), row.get("of both") or row.get("ratio")  # scans have one limit
        if value is not None and float(str(value).rstrip("x")) > best.get(key, -1) and row.get("met") != "WRONG":
            best[key] = float(str(value).rstrip("x"))
            found[key] = (f"{value:.2f}" if isinstance(value, float) else str(value), kernel, row.get("target") or "", best[key])
    return found


def read(path):
    """The last record of each (CPU, level), in the order in which they were met. ValueError: a line that is none."""
    last = {}
    with open(path, encoding="utf-8") as lines:
        for n, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                if record["schema"] != SCHEMA:
                    raise ValueError(f"schema {record['schema']!r}")
                reached(record)
                if not record.get("cells_at_most"):  # else small, for a test
                    last[cpu_name(record), record["isa"]] = record
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}:{n}: expected a record of schema {SCHEMA}: {error}") from None
    if not last:
        raise ValueError(f"{path}: expected the record of a machine at real sizes; there is none")
    return last


def facts(last):
    """Headings, and a row for each machine."""
    rows = []
    for (name, isa), r in last.items():
        met = f"{r['met']} of {r['targets']}" if "met" in r else "not kept"
        rows.append([name, isa, str(r.get("cores", "–")), str(r.get("threads", "–")), r.get("commit", "–"),
                     os.path.basename(r.get("tuning") or "built-in"), (r.get("date") or "–")[:10],
                     str(r.get("host", {}).get("load_1m", "–")), met])
    return ["machine", "level", "cores", "threads", "commit", "settings", "date", "load before", "targets met"], rows


def works(last):
    """A row for each figure of each work: work, figure, [(text, kernel where it is not flash, value) or None for each machine], target."""
    found = {machine: reached(record) for machine, record in last.items()}
    rows = []
    for key in dict.fromkeys(key for machine in reversed(found) for key in found[machine]):
        cells, target = [], ""
        for machine in last:
            text, kernel, wanted, value = found[machine].get(key, ("", "", "", 0))
            target = wanted or target
            plain = kernel in ("flash", "scan", key[1])
            cells.append((text, "" if plain else kernel, value) if text else None)
        rows.append((*key, cells, target))
    return rows


def cell(row, i):
    """Of machine i. A figure that meets its target has a mark, and its kernel below it."""
    if not row[2][i]:
        return Cell("–", None)
    text, kernel, value = row[2][i]
    return Cell(text + (" ✓" if is_met(value, row[3]) else ""), value, kernel)


def page(path):
    """Title and sections of the page of machines."""
    last = read(path)
    names, lines = facts(last)
    columns = [Column("work", "", lambda row: row[0]), Column("figure", "", lambda row: row[1])]
    columns += [Column(f"{name}, {isa}", "", lambda row, i=i: cell(row, i)) for i, (name, isa) in enumerate(last)]
    columns += [Column("target", "", lambda row: row[3])]
    return f"kvbench: how near kernels come to the limit, on {len(lines)} machines", (
        paragraph(ABOUT + " ✓: the target is met.") +
        section("machines", "Machines", table("machine-facts", "What was measured where", [
            Column(name, "", lambda line, i=i: line[i]) for i, name in enumerate(names)], lines), is_open=True) +
        section("works", "Works", table("machine-works", "What was reached", columns, works(last), kind="data"), is_open=True))
