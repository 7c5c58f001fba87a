# SPDX-License-Identifier: Apache-2.0
"""Result files (results/result.h) as the report reads them, and what it derives from them."""
import json
import math
import os
import re
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

    def with_status(self, *statuses):
        return [r for r in self.records if r["status"] in statuses]


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
        if name == "--set":
            knob = value if equals else words[i + 1] if i + 1 < len(words) else ""
            if f"--{knob.partition('=')[0]}" not in CHOOSING | CHOOSING_ALONE:
                kept += ["--set", knob]
            i += 1 if equals else 2
            continue
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
    row = BENCH.fullmatch(record["workload"])
    if row:
        scene, heads, dim, group, _, batch, *context = row.groups()
        words = ["--scene", scene, "--context", "".join(context), "--kv", pool_short(record).replace("/", ":"), "--threads",
                 str(record["threads"]), "--kernel", record["kernel"]]
        words += ["--heads", f"{heads}/{int(heads) * int(group)}", "--head-dim", dim] if scene == "decode" else []
        words += ["--batch", batch] if batch else []
        return shlex.join(["kvbench", "bench"] + words + [
            word for name, word in zip(["", *kept], kept) if name == "--plugin" or word.startswith("--plugin")])
    workload, values = re.match(r"([^@+]*)(?:@([^+]*))?", record["workload"]).groups(default="")
    options = [("workload", files.get(workload, workload)), ("values", values), ("cache", record["cache"]), ("pool", pool(record)),
               ("kernel", record["kernel"]), ("threads", str(record["threads"])),
               ("set", "" if record["growth"] == "double" else f"growth={record['growth']}")]
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


# ---- what may be compared ------------------------------------------------------------------------------------

SIZES = {"": 1, "k": 1024, "m": 1024**2}
# A row of `kvbench bench`: scene, KV heads, channels, query heads of each, windows, sequences, context.
BENCH = re.compile(r"([a-z]+)-(\d+)x([\d/]+)-g(\d+)(.*)-(?:(\d+)x)?(\d+)(k?)")


def scene_and_context(record):
    """("decode", 4096) of decode-4k, whose steps read 4,096 cells. (its name, None) where contexts vary inside of the workload."""
    name = re.fullmatch(r"(.+[-x])(\d+)([km]?)", record["workload"])
    cells = {p["cells"] for p in at(record, "time.contexts") or []}
    size = int(name[2]) * SIZES[name[3]] if name else None
    if size and (cells == {size} or BENCH.fullmatch(record["workload"])):
        return name[1].rstrip("-"), size
    return record["workload"], None


# The axes of a result, each of which may be compared alone. OTHERS must agree wherever results are compared.
AXES = {"workload": lambda r: scene_and_context(r)[0], "cache": lambda r: r["cache"], "pool": pool, "kernel": lambda r: r["kernel"],
        "threads": lambda r: r["threads"], "context": lambda r: scene_and_context(r)[1], "growth": lambda r: r["growth"]}
OTHERS = {"file": lambda r: r["run"].label, "out": lambda r: r.get("out"),
          "setting": lambda r: r.get("setting", "")}


def differ_in(records):
    """The names of what these results differ in."""
    return [name for name, value in (AXES | OTHERS).items() if len({value(r) for r in records}) > 1]


def differ_in_one(records):
    """Do these results differ in exactly one of AXES, in nothing else, and no two in nothing? Only then may they be compared."""
    names = differ_in(records)
    return len(names) == 1 and names[0] in AXES and len({AXES[names[0]](r) for r in records}) == len(records)


def alike_but(records, *names):
    """Lists of the results that agree in all but the axes of these names."""
    fixed = [value for name, value in (AXES | OTHERS).items() if name not in names]
    return list(grouped(records, lambda r: tuple(value(r) for value in fixed)).values())


def complete(records, axis):
    """Lists of the results that differ in this axis alone and miss no value with which their workload ran. Pairs miss some."""
    values = {name: {AXES[axis](r) for r in same} for name, same in grouped(records, lambda r: r["workload"]).items()}
    return [group for group in alike_but(records, axis) if len(group) > 1 and {AXES[axis](r) for r in group} == values[group[0]["workload"]]]


def is_noisy(record):
    """Is the interval of its median wider than half of the median? Then the time is not shown."""
    low, high = at(record, "time.low"), at(record, "time.high")
    return low is not None and high is not None and high - low > 0.5 * median_of(record)


def drawn(run):
    return [r for r in timed([run]) if not is_noisy(r)]


def best_of(records):
    """The fastest of results that differ in the kernel alone. None: too noisy to tell, or they differ in more."""
    if len(records) > 1 and not differ_in_one(records):
        return None
    told = [r for r in records if not is_noisy(r)]
    best = min(told, key=median_of, default=None)
    return best if best and all(at(r, "time.low") >= median_of(best) for r in records if is_noisy(r)) else None


def quantile(values, q):
    """By linear interpolation, like kvb_quantile. None if there are no values."""
    if not values:
        return None
    values = sorted(values)
    place = q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
