#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `kvbench machine` describes this machine in every format, measures it within 20 s, and refuses nonsense.
. "$(dirname "$0")/lib.sh"

machine() {
    "$KVBENCH" machine "$@"
}

ok "facts alone" machine --no-measure
holds "  the CPU" "^CPU +[^ ]"
holds "  the topology as a tree" "^ +PU L#0 \(P#0\)"
holds "  caches" "^DRAM +[0-9.]+ .iB"
holds "  virtual machine or not" "^virtual machine +[^ ]"
holds "  governor or why not" "^governor +[^ ]"
holds "  the level of its kernels" "^level +[a-z0-9]+$"
holds "  how many counters, and why not the others" "^counters +[0-9]+ of [0-9]+(; [^ ]+.*)?$"
lacks "  no rates" "GB/s"

ok "the topology as XML" machine --format xml
holds "  is hwloc's" "<topology version"
if command -v xmllint >/dev/null; then
    cp "$out" "$TMPDIR/machine.xml"
    ok "  is well-formed" xmllint --nonet --noout --noent "$TMPDIR/machine.xml"
fi

mkdir "$TMPDIR/root" # a machine whose /sys and /proc are hidden, as hwloc is told
ok "a run without /sys" env HWLOC_FSROOT="$TMPDIR/root" "$KVBENCH" run --check --workload plain-decode --cache seq --pool f32
holds "  judges" '^[1-9][0-9]* passed, 0 failed'
ok "  and nobody complains" test ! -s "$err"

before=$(date +%s)
ok "quick measurement" machine --quick --format json
took=$(($(date +%s) - before))
cp "$out" "$TMPDIR/machine.json"
echo "# took $took s"
cat >"$TMPDIR/check.py" <<'EOF'
import json, os, sys
m = json.load(open(sys.argv[1]))
assert m["schema"] == "kvbench.machine/1"
assert [l["name"] for l in m["levels"]] == ["L1", "L2", "LLC", "DRAM"]
threads = [r["threads"] for r in m["rows"]]
bound = len(os.sched_getaffinity(0)) < os.cpu_count() # to some of the cores
assert threads == sorted({1, threads[-1] if bound else m["cores"]}), threads
for row in m["rows"]:
    for level in m["levels"]:
        for rates in row["read_gb_per_s"], row["triad_gb_per_s"]:
            rate = rates[level["name"]]
            assert (rate is None) == (level["working_set_bytes"] == 0), (level, rate)
            assert rate is None or 0 < rate["low"] <= rate["median"] <= rate["high"], rate
            assert rate is None or rate["samples"] >= 5, rate
    for name, rate in row["peak_g_op_per_s"].items():
        assert (rate is None) == (name in m["peak_unavailable"]), name
    assert row["peak_g_op_per_s"]["f32"]["median"] > 0
    assert "amx_bf16" in row["peak_g_op_per_s"] and "amx_int8" in row["peak_g_op_per_s"]
EOF
ok "  json holds every level, peak and number of threads" python3 "$TMPDIR/check.py" "$TMPDIR/machine.json"

ok "csv" machine --quick --threads 1 --format csv
holds "  one row for each probe" "^read,DRAM,1,[0-9]+,GB/s,[0-9.]+,"
holds "  peaks too" "^peak,f32,1,,Gop/s,"

expect_exit 2 "more threads than cores" machine --threads 100000
one_line "  one line" && holds "  names the option" "--threads: '100000'" "$err"
expect_exit 2 "empty list of threads" machine --threads 1,
holds "  says so" "--threads: ''" "$err"
expect_exit 2 "unknown format" machine --format yaml
holds "  lists the known" "table, md, csv, json, xml" "$err"
expect_exit 2 "an argument" machine twice
expect_exit 3 "a full disk" sh -c '"$1" machine --no-measure >/dev/full' sh "$KVBENCH"
expect_exit 3 "a full disk for xml" sh -c '"$1" machine --format xml >/dev/full' sh "$KVBENCH"
done_testing
