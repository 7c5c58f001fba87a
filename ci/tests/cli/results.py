#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results.py TEMPLATE.jsonl OUT.jsonl [CHANGE...]: a result file made up from one record of a run, with fixed times.

Three workloads x five pools x two kernels over one cache, 24 passes each. CHANGE:
  slower=KERNEL:FACTOR   all times of a kernel       date=DATE commit=COMMIT cpu=MODEL   facts of the manifest
  mixed                  one each of what else can become of a combination
  noisy                  null comparisons that resolve nothing
"""
import copy
import json
import sys

WORKLOADS = ["agent-fork", "eagle-tree", "plain-decode"]
POOLS = ["f32", "f16", "bf16", "q8_0", "q4_0"]
KERNELS = ["flash", "reference"]
WEATHER = [0.0, 0.4, -0.7, 1.1, -0.2, 0.6, -1.3, 0.1, 0.9, -0.5, -0.1, 0.3]  # of passes, in percent


def fill(record, ns, shift):
    time = record["time"]
    series = [round(ns * (1 + (WEATHER[(i + shift) % 12] + 0.05 * (i // 12)) / 100), 1) for i in range(24)]
    middle = sorted(series)[12]
    time.update(median=middle, p99=max(series), mad=ns / 100, min=min(series), max=max(series), samples=24,
                total=sum(series), low=middle * 0.997, high=middle * 1.003, outliers=0, kinds={}, series=series,
                contexts=[], passes=25, warmup=1, null_difference=0.004 + 0.0002 * (shift % 10), harness_share=0.01)


def combination(template, workload, pool, kernel, number):
    r = copy.deepcopy(template)
    r.update(workload=workload, pool_k=pool, pool_v=pool, kernel=kernel, status="pass", reason=None, rho=0.125)
    r["memory"].update(allocator_peak=1048576, scratch_bytes=0, staged_bytes=0, copied_bytes=0, timeline=[])
    r["traffic"].update(bytes_read=1e6, bytes_walk=4e6, read_gb_per_s=10.0)
    fill(r, 10000.0 * (1 + number), number)
    return r


def times_scale(record, factor):
    time = record["time"]
    for key in ("median", "p99", "mad", "min", "max", "total", "low", "high"):
        time[key] *= factor
    time["series"] = [value * factor for value in time["series"]]


def mix(records):
    def of(workload, pool):
        return next(r for r in records if (r["workload"], r["pool_k"], r["kernel"]) == (workload, pool, "reference"))

    of("agent-fork", "f32").update(status="crash", reason="SIGSEGV in attend()")
    of("agent-fork", "f16").update(status="skip", reason="declined")
    records.remove(of("agent-fork", "bf16"))
    of("eagle-tree", "f32")["memory"]["allocator_peak"] += 1
    of("eagle-tree", "f16")["traffic"]["bytes_read"] = 1100000
    of("eagle-tree", "bf16")["rho"] = 0.25
    of("eagle-tree", "q8_0")["memory"]["allocator_peak"] = 524288
    times_scale(of("plain-decode", "f32"), 0.8)
    times_scale(of("plain-decode", "f16"), 1.045)
    fresh = copy.deepcopy(of("plain-decode", "q4_0"))
    fresh.update(pool_v="f16")
    records.append(fresh)


def main():
    lines = [json.loads(line) for line in open(sys.argv[1])]
    manifest = lines[0]
    template = next(r for r in lines[1:] if r["status"] == "pass")
    manifest.update(version="1", commit="aaaa", compiler="cc", flags="-O3", cpu_model="CPU", cpu_features=["avx2"], isa="avx2",
                    cores=2, memory_bytes=8 << 30, os="Linux", openblas_version="0.3", openblas_core="Haswell",
                    openblas_threads=1, openblas_note=None, suite="quick", seed=1, date="2025-01-01T00:00:00Z")
    keys = [(w, p, k) for w in WORKLOADS for p in POOLS for k in KERNELS]
    records = [combination(template, *key, number) for number, key in enumerate(keys)]
    for change in sys.argv[3:]:
        name, _, value = change.partition("=")
        if name == "slower":
            kernel, factor = value.split(":")
            for r in records:
                if r["kernel"] == kernel:
                    times_scale(r, float(factor))
        elif name == "noisy":
            for r in records:
                r["time"]["null_difference"] = 0.2
        elif name == "mixed":
            mix(records)
        else:
            manifest[{"cpu": "cpu_model"}.get(name, name)] = value
    with open(sys.argv[2], "w") as out:
        for line in [manifest] + records:
            out.write(json.dumps(line) + "\n")


main()
