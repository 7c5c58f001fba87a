#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `kvbench report` writes one page that works from disk in a browser: it can be sorted, filtered, read in the dark and on
# a phone, holds every plot, asks for nothing, and shows names as they are. Bad input is refused.
. "$(dirname "$0")/lib.sh"
browser=ci/tests/browser

run=$TMPDIR/run.jsonl
ok "a run to report" "$KVBENCH" run --set no-witness --workload plain-decode-8x128 --workload eagle-tree --cache seq --cache tree --pool f16 \
    --pool q4_0 --pool f32 --kernel flash --kernel openblas --kernel flash-int8 --set sample-ms=1 --set no-null --set oracle-pairs=20000 \
    --set machine -o "$run"
ok "its page" "$KVBENCH" report "$run" -o "$TMPDIR/page"
index=$TMPDIR/page/index.html
ok "  well-formed, its outline as it should be" python3 $browser/outline.py <"$index"
ok "  works in a browser" python3 $browser/report_page.py "$index" "$TMPDIR/command"
ok "the same file on a terminal" "$KVBENCH" show "$run" --all --wide
cp "$out" "$TMPDIR/terminal"
ok "  has the page's figures" python3 - "$TMPDIR/terminal" "$index" <<'PY'
import html, re, sys
page = [[re.sub(r"<[^>]+>", " ", cell.partition(">")[2]).strip() for cell in re.split(r"<t[dh]", html.unescape(row))[1:]]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", open(sys.argv[2]).read(), re.S)]
times = {tuple(row[:4]): [re.match(r"noisy|[0-9.]+ \S+", cell)[0].replace("µs", "us") for cell in row[7:9]]  # median and p99, by names
         for row in page if len(row) > 12 and row[5] == "pass"}
seen, heads = 0, []
for line in open(sys.argv[1]):
    cells = re.split(r" {2,}", line.strip())
    heads = cells if cells[:2] == ["workload", "cache"] else heads
    if "pass" in cells[:6] and len(cells) in (len(heads), len(heads) - 1):  # a last one is the reason
        row = dict(zip(heads, cells))
        names = row["workload"], row["cache"], row["pool"], row["kernel"]
        assert times[names] in ([row["median"], row["p99"]], ["noisy", row["p99"]]), (row, times[names])
        seen += 1
assert seen > 8, seen
PY
ok "  which lose a digit where rounding adds one" python3 -c 'import sys; sys.path[:0] = ["plots"]; from units import number
assert [number(x, "ns") for x in (99960, 999.6, 9.996, 12.34, 0)] == ["100 µs", "1.00 µs", "10.0 ns", "12.3 ns", "0 ns"]'
read -ra again <"$TMPDIR/command"
ok "  tells commands that run" "$KVBENCH" "${again[@]:1}" --set sample-ms=1 --set no-null --set no-machine -o "$TMPDIR/again.jsonl"
ok "    just the row" test "$(grep -c '"status": "pass"' "$TMPDIR/again.jsonl")" = 1

# What people ask of a report, of files whose times are known: two kernels, two thread counts, five contexts; a kernel that becomes
# slower by half; a machine that is another one; a file with one combination.
ok "files of known times" python3 - "$run" "$TMPDIR" <<'PY'
import copy, json, sys
manifest, *records = [json.loads(line) for line in open(sys.argv[1])]
manifest["command"] = "kvbench run --suite quick --plugin './my kernel.so' --cpu-mask=avx2 --workload ./ctx-64.jsonl --threads 1,2 -o x.jsonl"
first = next(r for r in records if r["status"] == "pass" and r["time"]["contexts"])
first["counters"] = {"PAPI_TOT_CYC": 1234567, "PAPI_TOT_INS": None, "unavailable": {"PAPI_TOT_INS": "no such event"}, "multiplexed": {}}
def made(workload, pool, kernel, threads, cells, ns):
    r = copy.deepcopy(first)
    of = {"median": ns, "low": 0.99 * ns, "high": 1.01 * ns, "p99": 2 * ns, "min": ns / 2, "max": 3 * ns}
    r.update(workload=workload, kernel=kernel, threads=threads, pool_k=pool, pool_v=pool)
    r["error"]["format"].update(bits_k=cells / 64, bits_v=cells / 64)
    r["time"].update(of, null_difference=0.001, passes=16, series=[ns * (1 + 0.0005 * (i % 3 - 1)) for i in range(16)],
                     contexts=[{"cells": cells, "ns": ns, "samples": 8}])
    r["time"]["kinds"][r["traffic"]["kind"]].update(of)
    r["traffic"].update(of_read=0.5, of_limit=0.5, gb_per_s=10, gflop_per_s=20)
    return r
def file(name, manifest, records):
    with open(f"{sys.argv[2]}/{name}.jsonl", "w") as out:
        for line in [manifest] + records:
            print(json.dumps(line), file=out)
def run(slower):
    return [made(f"ctx-{cells}", pool, kernel, threads, cells, base * slower.get(kernel, 1) * cells / threads ** 0.5)
            for cells in (64, 256, 1024, 4096, 16384) for pool in ("f16", "f32") for kernel, base in (("flash", 100), ("mine", 150)) for threads in (1, 2)]
file("before", manifest, run({}))
file("after", manifest, run({"mine": 1.5}) + [dict(copy.deepcopy(first), workload="ctx-1", pool_k="f32", pool_v="f32", status="fail", reason="bad")])
file("elsewhere", dict(manifest, cpu_model="another", tuning="my/tuned.json"), run({"mine": 1.5}))
file("one", manifest, run({})[:1])
def cached(cache, bytes_):
    r = dict(made("agent-session", "f16", "flash", 2, 24000, 5000), cache=cache)
    r["memory"] = dict(r["memory"], timeline=[{"event": e, "live_bytes": 2**20 * e, "held_bytes": bytes_ * e} for e in range(9)])
    return r
noisy = made("ctx-64", "q8_0", "flash", 1, 64, 100)
noisy["time"].update(low=70, high=121)
file("session", manifest, run({}) + [cached("slab", 2**22), cached("paged", 2**21), noisy, made("ctx-64", "q8_0", "mine", 1, 64, 90)])
# As pairs are drawn: whatever differs, differs in two axes at least.
file("pairs", manifest, [dict(r, cache=f"cache-{i}", setting=f"--seed {i}") for i, r in enumerate(run({}))])
foreign = {"calls": 5, "allocations": 7, "engine": "an engine 0.1", "rule": "nmse", "limit": 0.0005, "relative": 0, "share": 0.1, "outputs": 9,
           "source": "a test"}
file("beside", manifest, [dict(r, foreign=foreign) if r["kernel"] == "mine" else r for r in run({})])
PY
ok "before and after" "$KVBENCH" report "$TMPDIR/before.jsonl" "$TMPDIR/after.jsonl" -o "$TMPDIR/moved"
ok "  readable in a browser, and alone" python3 $browser/report_page.py "$TMPDIR/moved/index.html"
page() { # page NAME TEXT [FOLDER]: the page tells this
    grep -qF -- "$2" "$TMPDIR/${3-moved}/index.html"
    report $? "  $1"
}
page "says what got worse" '✗ 23 regressions, before to after'
page "  and what did not" '20 SAME, 20 SLOWER, 1 BROKEN'
page "draws each kernel over all its combinations" 'kernels and caches: kernel mine +50.0 % SLOWER; '
holds "  draws what moved most" 'what moved most: ctx-[0-9]+ (seq|tree) f(16|32) mine( 2 threads)? \+50\.0 % SLOWER; ' "$TMPDIR/moved/index.html"
ok "  and its table begins with it" python3 - "$TMPDIR/moved/index.html" <<'PY'
import re, sys
table = re.search('<table id="changes".*?</table>', open(sys.argv[1]).read(), re.S).group(0)
rows = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall("<tr.*?</tr>", table.split("<tbody>")[1])]
assert sorted(row[0] for row in rows[:21]) == ["BROKEN"] + 20 * ["SLOWER"], rows
slower = [row for row in rows if row[0] == "SLOWER"]
assert all(row[4] == "mine" and re.match(r"\+50.0 %<small>\+\d[\d.]* % to \+\d[\d.]* %<", row[-2]) for row in slower), slower
PY
page "has the change beside each combination" 'of the median since the first file'
page "tells which kernel wins as context grows" 'flash: 6.40 µs at 64 cells, 1.64 ms at 16384; mine: 9.60 µs at 64 cells, 2.46 ms at 16384.'
page "tells what threads bring" 'flash: 6.40 µs at 1 threads, 4.53 µs at 2; mine: 9.60 µs at 1 threads, 6.79 µs at 2.'
page "tells which kernel is the best of each format and context" 'f16 at 64: flash, 6.40 µs, 50 %'
ok "every part of the page" "$KVBENCH" report "$TMPDIR/session.jsonl" -o "$TMPDIR/session"
ok "  well-formed, its outline as it should be" python3 $browser/outline.py <"$TMPDIR/session/index.html"
golden "  with every section, table and plot" report-outline.golden sed -E '/could not be counted/d'
ok "  readable in a browser, and alone" python3 $browser/report_page.py "$TMPDIR/session/index.html"
page "  tells what each cache holds" 'most bytes: slab 32.0 MiB, paged 16.0 MiB' session
page "  does not tell the best where a noisy one may be it" 'q8_0 at 64: noisy' session
page "has counters" 'title="PAPI_TOT_CYC"'
page "  with their values" '>1,234,567<'
page "  and why others are not there" 'PAPI_TOT_INS: no such event'
page "tells the command of a failure" \
    'kvbench run --plugin &#x27;./my kernel.so&#x27; --cpu-mask=avx2 --workload ctx-1 --cache '
page "  and of what a trace file holds" '--workload ./ctx-64.jsonl --cache '
ok "files of two machines" "$KVBENCH" report "$TMPDIR/before.jsonl" "$TMPDIR/elsewhere.jsonl" -o "$TMPDIR/far"
page "judges no times" '20 of 40 undecided, nothing else got worse, before to elsewhere' far
page "  and says why" 'another machine' far
page "names the tuning of one" 'my/tuned.json</td>' far
page "  and of the other" 'built-in</td>' far
ok "one combination" "$KVBENCH" report "$TMPDIR/one.jsonl" -o "$TMPDIR/one"
page "is told" '1 passed, 0 failed' one
ok "beside the engine of others" "$KVBENCH" report "$TMPDIR/beside.jsonl" -o "$TMPDIR/others"
page "names it" '<p>an engine 0.1.</p>' others
page "  and says how much longer it takes" '1.50 × the best' others
! grep -q 'an engine' "$TMPDIR/one/index.html"
report $? "  which a run without one does not speak of"
lacks "  and not drawn" '<svg ' "$TMPDIR/one/index.html"
ok "results drawn by pairs" "$KVBENCH" report "$TMPDIR/pairs.jsonl" -o "$TMPDIR/pairs"
lacks "  are not compared" '<svg |Kernels beside' "$TMPDIR/pairs/index.html"
ok "  whatever a plot asks for" python3 - "$TMPDIR" <<'PY'
import sys
sys.path.insert(0, "plots")
import figures, records
pairs, designed = records.load([sys.argv[1] + "/pairs.jsonl", sys.argv[1] + "/before.jsonl"])
def changed(**words):
    return [dict(designed.records[0], **words), designed.records[0]]
for words in ({"kernel": "other"}, {"cache": "other"}, {"pool_k": "q8_0"}, {"threads": 9}, {"workload": "other-64"}, {"growth": "chunk"}):
    assert records.differ_in_one(changed(**words)), words
for words in ({}, {"kernel": "other", "cache": "other"}, {"setting": "--sinks"}, {"growth": "chunk", "cache": "other"}, {"kernel": "other", "setting": "--sinks"}):
    assert not records.differ_in_one(changed(**words)), words
assert not records.differ_in_one(changed(kernel="other") + changed(kernel="other")), "two of one place"
three = [dict(designed.records[0], cache="slab"), dict(designed.records[0], cache="paged"), dict(designed.records[0], cache="tree", kernel="other")]
assert len(records.complete(three[:2], "cache")) == 1 and not records.complete(three, "cache"), "of three caches two differ in one thing"
row = dict(designed.records[0], workload="decode-8x128-g4-4k", replay=None)
assert records.scene_and_context(row) == ("decode-8x128-g4", 4096)
assert records.again(row) == ("kvbench bench --scene decode --context 4k --kv f16 --threads 1 --kernel flash --heads 8/32 --head-dim 128 "
                              "--plugin './my kernel.so'"), records.again(row)
def kept(run):
    by_shape = [r for r in run.records if r["pool_k"] == "f16" and r["threads"] == 1]  # as if one asked for these in one plot
    types = figures.kernel_types([run])
    panels = [figures.kernels_panel([run], run, by_shape, "context", types, "kernels"), figures.winners_panel([run], run, by_shape, "kernels")]
    assert all(panels)
    return len(figures.comparable(figures.Figure("kernels", "", "", "small", panels)).panels)
assert (kept(pairs), kept(designed)) == (0, 2), (kept(pairs), kept(designed))
PY

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
passed[0].update(status="fail", rho=3.5, reason="<i>wrong</i> & far", replay="kvbench run --seed 7 --workload 'of its own'")
passed[1].update(status="crash", reason="signal 11")
records += [dict(passed[2], workload=f"long-{i}", status="timeout", reason="120 s") for i in range(200)]
records.append(dict(passed[2], workload="skipped", pool_k="f16", pool_v="f16", status="skip", reason="flash-bf16: f16: no products of bf16: neither this nor that"))
with open(sys.argv[2], "w") as out:
    for line in [manifest] + records:
        print(json.dumps(line), file=out)
PY
ok "its page" "$KVBENCH" report "$TMPDIR/other.jsonl" -o "$TMPDIR/bad"
holds "  says that it failed" '✗ other: failed' "$TMPDIR/bad/index.html"
holds "  and counts" '[0-9]+ passed, 1 failed, 1 crashed, 200 timed out' "$TMPDIR/bad/index.html"
holds "  with the reason" '&lt;i&gt;wrong&lt;/i&gt; &amp; far' "$TMPDIR/bad/index.html"
holds "  and the command that its record brings" '<code>kvbench run --seed 7 --workload &#x27;of its own&#x27;</code>' "$TMPDIR/bad/index.html"
holds "  groups what was skipped by reason, without the pool" '<summary>flash-bf16: no products of bf16: neither' "$TMPDIR/bad/index.html"
ok "both files in one page" "$KVBENCH" report "$run" "$TMPDIR/other.jsonl" -o "$TMPDIR/both"
ok "  well-formed" python3 $browser/outline.py <"$TMPDIR/both/index.html"
holds "  with a column of files" '^ +file \| workload \| cache'
ok "  works in a browser, names as they are" python3 $browser/report_page.py "$TMPDIR/both/index.html" "$TMPDIR/command" "$name"
ok "  nothing of them ran" test ! -e evil -a ! -e "$TMPDIR/both/evil"

ok "the plots as pictures" "$KVBENCH" report "$TMPDIR/session.jsonl" --pictures -o "$TMPDIR/plots"
for kind in png svg pdf; do
    ok "  every plot as $kind" test "$(find "$TMPDIR/plots" -name "*.$kind" -size +1k | wc -l)" = "$(grep -c '<svg ' "$TMPDIR/session/index.html")"
done
for name in kernels winners memory; do
    ok "  $name.png" test -s "$TMPDIR/plots/$name.png"
done

expect_exit 2 "no file named" "$KVBENCH" report
expect_exit 2 "a file that is not there" "$KVBENCH" report "$TMPDIR/none.jsonl"
one_line "  in one line"
echo 'not JSON' >"$TMPDIR/text.jsonl"
expect_exit 2 "a file that is no JSON" "$KVBENCH" report "$TMPDIR/text.jsonl"
holds "  names file and line" 'text.jsonl:1: ' "$err"
ok "records of machines" "$KVBENCH" report results/machines.jsonl -o "$TMPDIR/machines"
ok "  a page, well-formed" xmllint --nonet --noout "$TMPDIR/machines/index.html"
ok "  with the figures of results/machines.md" python3 - results/machines.md "$TMPDIR/machines/index.html" <<'PY'
import html, re, sys
cells = lambda row: [html.unescape(re.sub(r"<small>(.*?)</small>", r" (\1)", cell)) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)]
page = [[cell.replace(" ✓", "") for cell in cells(row)] for row in re.findall(r"<tr>(.*?)</tr>", open(sys.argv[2]).read(), re.S)]
table = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in open(sys.argv[1]) if line.startswith("| ")]
missing = [row for row in table if row not in page]
print(missing)
sys.exit(bool(missing) or len(table) < 50)
PY
head -c 2000 results/machines.jsonl >"$TMPDIR/cut.jsonl"
{ head -1 results/machines.jsonl; echo '{"schema":"kvbench.machines/1","works":[{}]}'; } >"$TMPDIR/bad.jsonl"
expect_exit 2 "a record without a work's name" "$KVBENCH" report "$TMPDIR/bad.jsonl" -o "$TMPDIR/machines"
holds "  is named by its line" "bad.jsonl:2: expected a record of schema kvbench.machines/1: 'kernel'" "$err"
one_line "  in one line"
expect_exit 2 "half a record" "$KVBENCH" report "$TMPDIR/cut.jsonl" -o "$TMPDIR/machines"
expect_exit 2 "machines beside a run" "$KVBENCH" report results/machines.jsonl "$run" -o "$TMPDIR/machines"
holds "  are refused" 'records of machines make a page by themselves' "$err"
sed 's|kvbench.result/[0-9]*|kvbench.result/1|' "$run" >"$TMPDIR/old.jsonl"
expect_exit 2 "another schema" "$KVBENCH" report "$run" "$TMPDIR/old.jsonl"
one_line "  in one line"
expect_exit 2 "plots that are not there" "$KVBENCH" report "$run" --plots "$TMPDIR/none"
expect_exit 3 "a folder that cannot be" "$KVBENCH" report "$run" -o "$run/page"
one_line "  in one line"
expect_exit 3 "no python3" env KVB_PYTHON="$TMPDIR/none" "$KVBENCH" report "$run" -o "$TMPDIR/page"
one_line "  in one line"
expect_exit 3 "no gnuplot" env PATH="$TMPDIR" KVB_PYTHON="$(command -v python3)" "$KVBENCH" report "$run" -o "$TMPDIR/page"
holds "  names the package" 'install the Debian package gnuplot-nox' "$err"
done_testing
