# SPDX-License-Identifier: Apache-2.0
"""Result files (results/result.h) as the report reads them, and what it derives from them."""
import json
import math
import os


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
        self.path, self.label = path, label
        with open(path, encoding="utf-8") as lines:
            self.manifest, *self.records = [json.loads(line) for line in lines if line.strip()]
        for record in self.records:
            record["run"] = self

    def with_status(self, *statuses):
        return [r for r in self.records if r["status"] in statuses]


def load(paths):
    stems = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    return [Run(path, stem if stems.count(stem) == 1 else path) for path, stem in zip(paths, stems)]


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
