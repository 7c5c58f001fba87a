#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `kvbench report` writes one page that works from disk in a browser: it can be sorted, filtered, read in the dark and on
# a phone, holds every plot, asks for nothing, and shows names as they are. Bad input is refused.
. "$(dirname "$0")/lib.sh"
browser=ci/tests/browser

run=$TMPDIR/run.jsonl
ok "a run to report" "$KVBENCH" run --workload plain-decode-8x128 --workload eagle-tree --cache seq --cache tree --pool f16 \
    --pool q4_0 --pool f32 --kernel flash --kernel openblas --kernel flash-int8 --sample-ms 1 --no-null --oracle-pairs 20000 \
    --machine -o "$run"
ok "its page" "$KVBENCH" report "$run" -o "$TMPDIR/page"
index=$TMPDIR/page/index.html
ok "  well-formed, its outline as it should be" python3 $browser/outline.py <"$index"
golden "  with every section, table and plot" report-outline.golden sed -E '/^plot:/s/, (seq|tree)\b//g' # which cache is the fastest
ok "  works in a browser" python3 $browser/report_page.py "$index" "$TMPDIR/command"
read -ra again <"$TMPDIR/command"
ok "  tells commands that run" "$KVBENCH" "${again[@]:1}" --sample-ms 1 --no-null -o "$TMPDIR/again.jsonl"
ok "    just the row" test "$(grep -c '"status": "pass"' "$TMPDIR/again.jsonl")" = 1

# Names that try to get out of where they stand; a failure, a crash, more rows than are shown at first; a machine that was not measured; no timeline.
name='</td><b id="evil">&amp; it'\''s `touch evil` $(touch evil) \'
ok "a file of another mind" python3 - "$run" "$TMPDIR/other.jsonl" "$name" <<'PY'
import json, sys
manifest, *records = [json.loads(line) for line in open(sys.argv[1])]
manifest["machine"] = []
passed = [r for r in records if r["status"] == "pass"]
for r in passed:
    if r["workload"] == "plain-decode-8x128":
        r["workload"] = sys.argv[3]
    r["memory"]["timeline"] = []
passed[0].update(status="fail", rho=3.5, reason="<i>wrong</i> & far")
passed[1].update(status="crash", reason="signal 11")
records += [dict(passed[2], workload=f"long-{i}", status="timeout", reason="120 s") for i in range(200)]
with open(sys.argv[2], "w") as out:
    for line in [manifest] + records:
        print(json.dumps(line), file=out)
PY
ok "its page" "$KVBENCH" report "$TMPDIR/other.jsonl" -o "$TMPDIR/bad"
holds "  says that it failed" '✗ other: failed' "$TMPDIR/bad/index.html"
holds "  and counts" '[0-9]+ passed, 1 failed, 1 crashed, 200 timed out' "$TMPDIR/bad/index.html"
holds "  with the reason" '&lt;i&gt;wrong&lt;/i&gt; &amp; far' "$TMPDIR/bad/index.html"
holds "  says what is not there" 'Unavailable: no timeline of memory in these files' "$TMPDIR/bad/index.html"
ok "both files in one page" "$KVBENCH" report "$run" "$TMPDIR/other.jsonl" -o "$TMPDIR/both"
ok "  well-formed" python3 $browser/outline.py <"$TMPDIR/both/index.html"
holds "  with a column of files" '^ +file \| workload \| cache'
ok "  works in a browser, names as they are" python3 $browser/report_page.py "$TMPDIR/both/index.html" "$TMPDIR/command" "$name"
ok "  nothing of them ran" test ! -e evil -a ! -e "$TMPDIR/both/evil"

ok "the plots as pictures" "$KVBENCH" report "$run" --pictures -o "$TMPDIR/plots"
for kind in png svg pdf; do
    ok "  every plot as $kind" test "$(find "$TMPDIR/plots" -name "*.$kind" -size +1k | wc -l)" = "$(grep -c '<svg ' "$index")"
done

expect_exit 2 "no file named" "$KVBENCH" report
expect_exit 2 "a file that is not there" "$KVBENCH" report "$TMPDIR/none.jsonl"
one_line "  in one line"
echo 'not JSON' >"$TMPDIR/text.jsonl"
expect_exit 2 "a file that is no JSON" "$KVBENCH" report "$TMPDIR/text.jsonl"
holds "  names file and line" 'text.jsonl:1: ' "$err"
sed 's|kvbench.result/[0-9]*|kvbench.result/1|' "$run" >"$TMPDIR/old.jsonl"
expect_exit 2 "another schema" "$KVBENCH" report "$run" "$TMPDIR/old.jsonl"
one_line "  in one line"
expect_exit 2 "plots that are not there" "$KVBENCH" report "$run" --plots "$TMPDIR/none"
expect_exit 3 "a folder that cannot be" "$KVBENCH" report "$run" -o "$run/page"
one_line "  in one line"
expect_exit 3 "no python3" env KVB_PYTHON="$TMPDIR/none" "$KVBENCH" report "$run" -o "$TMPDIR/page"
one_line "  in one line"
python=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || command -v python3)
expect_exit 3 "no gnuplot" env PATH="$TMPDIR" KVB_PYTHON="$python" "$KVBENCH" report "$run" -o "$TMPDIR/page"
holds "  names the package" 'install the Debian package gnuplot-nox' "$err"
done_testing
