# SPDX-License-Identifier: Apache-2.0
"""Result files (results/result.h) as the report reads them, and what it derives from them."""
import json
import math
import os
import shlex
import sys


def at(record, path):
    """at(r, "time.median"): the value there, None where it is null or missing."""
    for key in path.split("."):
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


class Run:
    """One result file. `label` distinguishes it from the other files of a report."""

    def __init__(self, path, label):
        self.path, self.label, self.is_after = path, label, False  # is_after: the second of two files
        with open(path, encoding="utf-8") as lines:
            self.manifest, *self.records = [json.loads(line) for line in lines if line.strip()]
        self.command = command_read(self.manifest["command"])
        for record in self.records:
            record["run"] = self
        speedups_add(self.records)

    def with_status(self, *statuses):
        return [r for r in self.records if r["status"] in statuses]


def speedups_add(records):
    """Gives each record its speed-up over the same combination with the fewest threads; None if that is all there is."""
    for group in grouped(records, lambda r: (r["workload"], r["cache"], pool(r), r["kernel"], r["growth"])).values():
        ran = sorted(filter(is_timed, group), key=lambda r: r["threads"])
        for record in group:
            known = is_timed(record) and ran[0]["threads"] < ran[-1]["threads"]
            record["speedup"] = median_of(ran[0]) / median_of(record) if known else None


def load(paths):
    stems = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    runs = [Run(path, stem if stems.count(stem) == 1 else path) for path, stem in zip(paths, stems)]
    if len(runs) == 2:
        runs[1].is_after = True
    return runs


def comparison(paths):
    """What `kvbench report` found between two files, from standard input: rows as `kvbench compare --format json` prints them, with
    numbers as such. [] unless there are two."""
    text = "" if len(paths) != 2 or sys.stdin.isatty() else sys.stdin.read()
    return json.loads(text) if text.strip() else []


def move(row):
    """How far it moved, up or down; 0 where that is not known."""
    return abs(math.log(row["ratio"])) if row["ratio"] else 0


def by_move(rows):
    """What is decided first, and of equals what moved most."""
    return sorted(rows, key=lambda row: (row["verdict"] in ("UNDECIDED", "SAME", "SKIPPED"), -move(row)))


def pool(record):
    k, v = record["pool_k"], record["pool_v"]
    return k if k == v else f"k={k},v={v}"


def pool_short(record):
    """A short name for plots: K/V if they differ."""
    return record["pool_k"] if record["pool_k"] == record["pool_v"] else f"{record['pool_k']}/{record['pool_v']}"


def cache(record):
    return record["cache"] if record["growth"] in ("", "double") else f"{record['cache']}, {record['growth']}"


def bits(record):
    """Bits of a stored value, the mean of K and V."""
    k, v = at(record, "error.format.bits_k"), at(record, "error.format.bits_v")
    return None if k is None or v is None else (k + v) / 2


# Options of a run that choose combinations or say where results go: a value follows, or none.
CHOOSING = {"--suite", "--workload", "--cache", "--pool", "--kernel", "--best-from", "--threads", "--values", "--growth", "--shard",
            "--jobs", "-o", "--junit", "--timeline", "--format"}
CHOOSING_ALONE = {"--pairs", "--product", "--resume", "--all"}


def name_inside(path):
    """The name that a trace file gives to its workload; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.readline()).get("name")
    except (OSError, ValueError, AttributeError):
        return None


def command_read(text):
    """The words of a run's command that are no choice of combinations, and the trace files by the names of their workloads."""
    try:
        words = shlex.split(text)[2:]
    except ValueError:
        words = text.split()[2:]
    kept, files, i = [], {}, 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        if name in CHOOSING and not equals:
            i += 1
            value = words[i] if i < len(words) else ""
        if name == "--workload" and ("/" in value or value.endswith(".jsonl")):
            files[name_inside(value) or os.path.splitext(os.path.basename(value))[0]] = value
        if name not in CHOOSING | CHOOSING_ALONE:
            kept.append(words[i])
        i += 1
    return kept, files


def again(record):
    """The command that runs this combination alone, as its run did. A failure brings it along."""
    if record.get("replay"):
        return record["replay"]
    kept, files = record["run"].command
    workload, _, values = record["workload"].partition("@")
    options = [("workload", files.get(workload, workload)), ("values", values), ("cache", record["cache"]), ("pool", pool(record)),
               ("kernel", record["kernel"]), ("threads", str(record["threads"])),
               ("growth", "" if record["growth"] == "double" else record["growth"])]
    return shlex.join(["kvbench", "run"] + kept + [word for name, value in options if value for word in (f"--{name}", value)])


def is_timed(record):
    """Did it pass, and does it compute something? A witness only reports what it was shown."""
    return (record["status"] == "pass" and bool(at(record, "time.median"))
            and not at(record, "error.witness.queries"))


def timed(runs):
    return [r for run in runs for r in run.records if is_timed(r)]


def median_of(record):
    return at(record, "time.median")


def grouped(records, key):
    """{key: [records]}, in the order of the first record of each key."""
    groups = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def fastest(records, key):
    """The fastest record of each group."""
    return {k: min(group, key=median_of) for k, group in grouped(records, key).items()}


def race(record):
    """Records with the same file, workload and threads may be compared."""
    return record["run"].label, record["workload"], record["threads"]


def rates(run, threads):
    """What the machine reached with so many threads (manifest.machine); {} if it was not measured."""
    return next((m for m in run.manifest["machine"] if m["threads"] == threads), {})


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def quantile(values, q):
    """By linear interpolation, like kvb_quantile. None if there are no values."""
    if not values:
        return None
    values = sorted(values)
    place = q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def resolution(run):
    """The difference below which 99 % of a run's null comparisons stay."""
    return quantile([d for d in (at(r, "time.null_difference") for r in run.records) if d is not None], 0.99)
