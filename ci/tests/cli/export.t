#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what is exported is what its readers take: JUnit XML by a schema and Python's parser, Google Benchmark's JSON by
# its own compare.py, the records themselves and the CSV by pandas; and a run writes its JUnit file whole, whatever fails.
. "$(dirname "$0")/lib.sh"

fixtures=ci/tests/cli/fixtures
xsd=$fixtures/junit.xsd
compare=/usr/share/benchmark/compare.py

# reader NAME PACKAGE COMMAND…: is there such a reader? Its tests are skipped, with the reason, where there is none.
reader() {
    local name=$1 package=$2
    shift 2
    "$@" >"$out" 2>"$err" && return 0
    report 0 "$name # SKIP not installed: $package"
    return 1
}

# Of Google Benchmark's JSON the context, one combination with only its first pass, and what failed: the rest is alike.
thinned() {
    sed "s|'$TMPDIR/\([^']*\)'|\1|g; s|$TMPDIR/||g" | if [ "$1" = benchmark ]; then # quoted where it holds a space
        python3 -c 'import json, sys
whole = json.load(sys.stdin)
whole["benchmarks"] = [b for b in whole["benchmarks"] if not b.get("repetition_index")
                       and ("/flash/1/double" in b["run_name"] or "error_message" in b)]
json.dump(whole, sys.stdout, indent=1)'
    else
        cat
    fi
}

f=$TMPDIR/f.jsonl
$fixtures/results.py kinds >"$f"
$fixtures/results.py kinds 1.1 >"$TMPDIR/slower.jsonl"
for format in table md csv json junit benchmark; do
    ok "show --format $format" "$KVBENCH" show "$f" --format $format
    golden "  is as it was" "export-$format.golden" thinned $format
    cp "$out" "$TMPDIR/f.$format"
done
ok "show --all" "$KVBENCH" show "$f" --all
golden "  is as it was" export-all.golden thinned table
"$KVBENCH" show "$TMPDIR/slower.jsonl" --format benchmark >"$TMPDIR/slower.benchmark"

expect_exit 2 "an unknown format" "$KVBENCH" show "$f" --format xml
holds "  says which are known" "unknown format 'xml'; known: table, md, csv, json, junit, benchmark" "$err"
expect_exit 2 "a workload is no result file" "$KVBENCH" show plain-decode --format junit
one_line "  in one line"
expect_exit 2 "two result files are no one document" "$KVBENCH" show "$f" "$f" --format benchmark
one_line "  in one line"
ok "but two tables" "$KVBENCH" show "$f" "$f"

# junit_told XML JSONL: the XML tells each record once, with its status, and its counts are right.
junit_told() {
    python3 - "$1" "$2" <<'PY'
import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
records = [json.loads(line) for line in open(sys.argv[2])][1:]
element = {"pass": None, "fail": "failure", "skip": "skipped", "crash": "error", "timeout": "error"}
def held(text): return text.replace("\u0001", "?").replace("\ufffe", "?")
def name(r):
    pools = r["pool_k"] if r["pool_k"] == r["pool_v"] else "k={pool_k},v={pool_v}".format(**r)
    return held("/".join((r["workload"], r["cache"], pools, r["kernel"], str(r["threads"]), r["growth"])))
want = sorted((held(r["workload"]), name(r), element[r["status"]], r["reason"]) for r in records)
got = sorted((suite.get("name"), case.get("name"), case[0].tag if len(case) else None,
              case[0].get("message") if len(case) else None) for suite in root for case in suite.iter("testcase"))
assert got == want, (got, want)
for suite in root:
    for count, tag in ("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped"):
        assert int(suite.get(count)) == len(list(suite.iter(tag))), (suite.get("name"), count)
    assert abs(float(suite.get("time")) - sum(float(case.get("time")) for case in suite.iter("testcase"))) < 1e-4
for count in "tests", "failures", "errors":
    assert int(root.get(count)) == sum(int(suite.get(count)) for suite in root)
PY
}
ok "the JUnit file tells each record once" junit_told "$TMPDIR/f.junit" "$f"
if reader "JUnit by its schema" libxml2-utils xmllint --version; then
    ok "JUnit by its schema" xmllint --noout --schema $xsd "$TMPDIR/f.junit"
fi

if reader "Google Benchmark's compare.py" "libbenchmark-tools python3-scipy" python3 $compare --help; then
    ok "Google Benchmark's compare.py reads both" python3 $compare --no-color -d "$TMPDIR/u.json" benchmarks \
        "$TMPDIR/f.benchmark" "$TMPDIR/slower.benchmark"
    holds "  and runs its U test over the passes" 'U Test, Repetitions: 12 vs 12'
    ok "  which finds the kernel that became slower, and no other" python3 - "$TMPDIR/u.json" <<'PY'
import json, sys
slower = {b["name"] for b in json.load(open(sys.argv[1])) if b.get("utest") and b["utest"]["time_pvalue"] < 0.001}
assert slower and all("/flash/" in name for name in slower), slower
PY
fi

if reader "pandas" python3-pandas python3 -c 'import pandas'; then
    ok "pandas reads records and CSV alike" python3 - "$f" "$TMPDIR/f.csv" "$TMPDIR/f.benchmark" <<'PY'
import json, sys, pandas
lines = pandas.read_json(sys.argv[1], lines=True)
records = pandas.json_normalize(lines[lines["workload"].notna()].to_dict("records"))
table = pandas.read_csv(sys.argv[2])
assert len(records) == len(table) == 14
assert table["median_ns"].dtype == float and table["threads"].dtype == int
assert list(table["workload"]) == list(records["workload"])
def same(a, b): return ((a.astype(float) - b.astype(float)).abs() < 1e-9).sum() == 8 and (a.isna() == b.isna()).all()
assert same(table["median_ns"], records["time.median"]) and same(table["peak_bytes"], records["memory.allocator_peak"])
benchmark = pandas.DataFrame(json.load(open(sys.argv[3]))["benchmarks"])
medians = benchmark[benchmark.get("aggregate_name") == "median"].set_index("run_name")["real_time"]
assert abs(medians["plain-decode/seq/f16/flash/1/double"] - 20120.1) < 1e-6 and len(medians) == 7
assert benchmark["error_occurred"].sum() == 3
PY
fi

# ---- a run writes it
run=("$KVBENCH" run --workload plain-decode --cache seq --set no-null --set sample-ms=5)
ok "a run with --junit" "${run[@]}" --pool f32 --kernel reference -o "$TMPDIR/r.jsonl" --junit "$TMPDIR/r.xml"
ok "  tells what its records tell" junit_told "$TMPDIR/r.xml" "$TMPDIR/r.jsonl"
ok "the plug-in of crimes builds" plugin crimes "$TMPDIR/crimes.so"
crimes=(--plugin "$TMPDIR/crimes.so" --pool f32 --kernel crime-none --kernel crime-segfault --kernel crime-scaled)
expect_exit 1 "a run that fails" "${run[@]}" "${crimes[@]}" -o "$TMPDIR/c.jsonl" --junit "$TMPDIR/r.xml"
holds "  and ends with what failed" '^crash plain-decode/seq/f32/crime-segfault/1/double: SIGSEGV'
ok "  tells so in place of the file that was there" junit_told "$TMPDIR/r.xml" "$TMPDIR/c.jsonl"
holds "  with a failure" '<failure .*rho' "$TMPDIR/r.xml"
holds "  and an error" '<error .*SIGSEGV' "$TMPDIR/r.xml"
if reader "it by the schema" libxml2-utils xmllint --version; then
    ok "  by the schema too" xmllint --noout --schema $xsd "$TMPDIR/r.xml"
fi
expect_exit 2 "a place that is not there" "${run[@]}" --pool f32 --kernel reference --junit "$TMPDIR/none/r.xml"
one_line "  is said in one line, before anything is run"
expect_exit 3 "a full disk" "${run[@]}" --pool f32 --kernel reference --junit /dev/full -o "$TMPDIR/full.jsonl"
holds "  is said" '/dev/full: cannot be written: No space left' "$err"
ok "  and the records are kept" "$KVBENCH" show "$TMPDIR/full.jsonl"
done_testing
