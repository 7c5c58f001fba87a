#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what a run says of cost is complete and consistent: null comparison, intervals, counters with reasons, software
# events, the harness's own share, timeline, cache states, thread counts.
. "$(dirname "$0")/lib.sh"

run=("$KVBENCH" run --workload plain-decode --cache seq --pool f16)
m=$TMPDIR/m.jsonl
expect_exit 0 "a run" "${run[@]}" --workload agent-fork --cache slab --set sample-ms=100 --set timeline="$TMPDIR/t.csv" -o "$m"
holds "  prints the smallest difference that it can resolve" '^smallest difference this run can resolve: ([0-9.]+ %|unknown) \([0-9]+ null comparisons?\)'

so=$TMPDIR/crimes.so
ok "the plug-in of crimes builds" plugin crimes "$so"
expect_exit 0 "a kernel that is slower in the second process" env KVB_FIRST="$TMPDIR/first" "${run[@]}" --plugin "$so" --kernel second-slower \
    --set sample-ms=100 -o "$TMPDIR/second.jsonl"
ok "  differs from itself" python3 -c 'import json, sys
assert [json.loads(line) for line in open(sys.argv[1])][1]["time"]["null_difference"] > 0.4' "$TMPDIR/second.jsonl"

ok "its records hold together" python3 - "$m" <<'PY'
import json, statistics, sys
records = [json.loads(line) for line in open(sys.argv[1])][1:]
passed = [r for r in records if r["status"] == "pass" and r["kernel"] != "witness"]
assert passed
for r in passed:
    t, w, m, c = r["time"], r["traffic"], r["memory"], r["counters"]
    assert t["passes"] > t["warmup"] >= 0
    for s in [t] + list(t["kinds"].values()):
        assert s["min"] <= s["median"] <= s["max"] and s["low"] <= s["median"] <= s["high"] and s["p99"] <= s["max"]
        assert 0 <= s["outliers"] <= s["samples"]
    attending = sum(t["kinds"][k]["samples"] for k in ("prefill", "decode", "fork", "verify") if k in t["kinds"])
    assert attending == t["samples"]
    assert t["null_difference"] >= 0 and 0 < t["harness_share"] < 1 and t["cache_state"] == "natural"
    assert w["kind"] in t["kinds"] and w["read_gb_per_s"] > 0 and w["peak_gflop_per_s"] > 0
    assert abs(w["of_read"] - w["gb_per_s"] / w["read_gb_per_s"]) < 1e-6 * w["of_read"]
    if t["kinds"][w["kind"]]["samples"] == attending: # all steps are of one kind
        assert abs(w["gb_per_s"] * w["flops"] / (w["gflop_per_s"] * w["bytes_read"]) - 1) < 1e-6
    assert w["of_limit"] >= w["of_read"] * (1 - 1e-6)
    kept = t["passes"] - t["warmup"]
    assert len(t["series"]) == (0 if kept < 4 else min(kept, kept // -(-kept // 64)))
    if 4 <= kept <= 64:
        assert abs(statistics.median(t["series"]) / t["median"] - 1) < 1e-9
    contexts, main = t["contexts"], t["kinds"][w["kind"]]
    assert 0 < len(contexts) <= 32 and sum(c["samples"] for c in contexts) == main["samples"]
    assert all(a["cells"] < b["cells"] for a, b in zip(contexts, contexts[1:]))
    assert all(main["min"] <= c["ns"] <= main["max"] for c in contexts)
    assert 0 < m["utilisation"] <= 1 and 0 <= m["fragmentation"] < 1 and m["cells_reused"] >= 0
    assert "bound" in r["placement"] and "NUMA" in r["placement"]
    # the harness's own counts, read back through PAPI, are the traffic model's
    for key in ("cells_read", "bytes_read", "bytes_walk"):
        assert c["sde:::kvbench::" + key] == w[key], key
    # a counter is a value, or null with a reason, never both
    for name, value in c.items():
        if name in ("unavailable", "multiplexed"):
            continue
        assert (value is None) == (name in c["unavailable"]), name
        assert value is not None or c["unavailable"][name]
    assert c["task_clock_ns"] is None or c["task_clock_ns"] > 0
    assert c["user_ns"] + c["system_ns"] > 0
    assert ("fork" in t["kinds"]) == (r["workload"] == "agent-fork")
PY

ok "the timeline has a line for each event of each combination" python3 - "$TMPDIR/t.csv" "$m" <<'PY'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
for r in [json.loads(line) for line in open(sys.argv[2])][1:]:
    mine = [x for x in rows if all(x[k] == r[k] for k in ("workload", "cache", "pool_k", "kernel"))]
    if r["status"] != "pass":
        continue
    assert [int(x["event"]) for x in mine] == list(range(len(mine))) and len(mine) > 60
    assert max(int(x["reserved_bytes"]) for x in mine) == r["memory"]["reserved_bytes"]
    assert max(int(x["cells_live"]) for x in mine) <= r["memory"]["cells_peak"]
    assert int(mine[-1]["cells_live"]) == r["memory"]["cells"]
    # the record's own timeline is a part of it, with its ends and its peak
    points = r["memory"]["timeline"]
    cell = r["memory"]["utilisation"] * r["memory"]["reserved_bytes"] / r["memory"]["cells_peak"]
    assert points[0]["event"] == 0 and points[-1]["event"] == len(mine) - 1 and 60 < len(points) <= 64
    assert max(p["held_bytes"] for p in points) == max(int(x["allocator_bytes"]) for x in mine)
    for p in points:
        line = mine[p["event"]]
        assert p["held_bytes"] == int(line["allocator_bytes"])
        assert abs(p["live_bytes"] - int(line["cells_live"]) * cell) <= 1e-6 * p["live_bytes"]
PY

for state in hot cold; do
    expect_exit 0 "--cache-state $state" "${run[@]}" --kernel openblas --set cache-state=$state -o "$m"
    holds "  is recorded" "\"cache_state\": \"$state\"" "$m"
done
expect_exit 2 "an unknown state" "${run[@]}" --set cache-state=warm
holds "  says which are known" 'known: natural, hot, cold' "$err"
expect_exit 2 "an unknown event" "${run[@]}" --set events=NOT_AN_EVENT
one_line "  in one line"
holds "  by its name" '--set events=NOT_AN_EVENT: PAPI' "$err"
expect_exit 0 "an event of our own choice" "${run[@]}" --kernel reference --set events=sde:::kvbench::bytes_read -o "$m"
lacks "  is counted" 'cannot be counted' "$err"

# What can be counted depends on the machine; that what cannot is said by name does not.
event=energy_package_nj
expect_exit 0 "an event that this machine may not have" "${run[@]}" --kernel reference --set events=$event --counters -o "$m"
cp "$err" "$TMPDIR/said"
cp "$out" "$TMPDIR/shown"
if grep -qE "\"$event\": [0-9]" "$m"; then
    holds "$event is shown" "$event [0-9]+" "$TMPDIR/shown"
else
    holds "$event is noted before the run, by name" "^kvbench run: note: --set events=$event cannot be counted here: PAPI" "$TMPDIR/said"
    holds "  and after it" "^not counted: $event: PAPI" "$TMPDIR/shown"
fi
holds "counters are shown" 'bytes_read' "$TMPDIR/shown"
ok "in csv" "$KVBENCH" show "$m" --format csv --counters
holds "  they are columns" '^workload,.*,reason,.*sde:::kvbench::cells_read,.*max_resident_bytes$'
cp "$out" "$TMPDIR/columns.csv"
ok "  of numbers" python3 -c 'import csv, sys; r = list(csv.DictReader(open(sys.argv[1])))
assert int(r[0]["sde:::kvbench::bytes_read"]) > 0, r' "$TMPDIR/columns.csv"
ok "without --counters" "$KVBENCH" show "$m" --format csv
lacks "  they are not" 'kvbench::'
expect_exit 2 "too many threads" "${run[@]}" --threads 512
holds "  says what would allow it" 'oversubscribe' "$err"
expect_exit 0 "threads unbound" "${run[@]}" --kernel reference --threads 3 --set oversubscribe -o "$m"
holds "  recorded as such" '"placement": "3 threads unbound' "$m"
expect_exit 0 "first touch by the team" "${run[@]}" --kernel openblas --set first-touch -o "$m"
holds "  recorded as such" 'first touched by the team' "$m"
expect_exit 0 "without guard pages" "${run[@]}" --kernel openblas --set no-guard
blas=("$KVBENCH" run --check --workload plain-decode --cache seq --pool f32 --kernel openblas)
ok "OpenBLAS as it suits the CPU" env -u OPENBLAS_CORETYPE "${blas[@]}"
lacks "  needs no cure" 'the cure is'
if grep -qw avx2 /proc/cpuinfo; then
    ok "an old core that the user wants" env OPENBLAS_CORETYPE=PRESCOTT "${blas[@]}"
    holds "  is noted, with the cure" '^note: OpenBLAS runs as core Prescott at level [0-9a-z]+; the cure is OPENBLAS_CORETYPE='
fi
expect_exit 0 "OpenBLAS as it chooses" env -u OPENBLAS_CORETYPE "$KVBENCH" run --workload plain-decode --cache seq \
    --pool f32 --kernel openblas --set openblas-core=keep -o "$m"
expect_exit 0 "OpenBLAS as asked" env -u OPENBLAS_CORETYPE "$KVBENCH" run --workload plain-decode --cache seq \
    --pool f32 --kernel openblas --set openblas-core=HASWELL -o "$m"
holds "  is what was used" '"openblas_core": "Haswell"' "$m"
for level in portable avx2; do
    grep -qw avx2 /proc/cpuinfo || break
    ok "OpenBLAS at level $level" env -u OPENBLAS_CORETYPE "${blas[@]}" --cpu-mask $level -o "$m"
    holds "  uses no more" "\"openblas_core\": \"$([ $level = avx2 ] && echo Haswell || echo Prescott)\"" "$m"
done
mkdir "$TMPDIR/broken" && : >"$TMPDIR/broken/libopenblas.so.0"
ok "without OpenBLAS" env LD_LIBRARY_PATH="$TMPDIR/broken" "$KVBENCH" list kernels
holds "  its kernel is unavailable" '^kernel +openblas .* unavailable: no OpenBLAS: .*libopenblas'
expect_exit 2 "a timeline that cannot be written" "${run[@]}" --set timeline="$TMPDIR/none/t.csv"
done_testing
