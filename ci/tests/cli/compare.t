#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: kvbench compare: a file is the same as itself; a kernel slowed by a tenth is named; every verdict in every
# format; thresholds; baselines of a machine; the step of a history; bad input.
. "$(dirname "$0")/lib.sh"

root=$PWD
GOLDEN=$root/$GOLDEN
cd "$TMPDIR" || exit 1 # golden output names files
make_run() { # OUT.jsonl CHANGE…
    "$root/ci/tests/cli/fixtures/results.py" matrix "${@:2}" >"$1"
}
ok "a run" "$KVBENCH" run --set no-witness --workload plain-decode --cache seq --pool f32 --kernel reference --set sample-ms=5 --set no-null \
    -o run.jsonl
ok "with itself" "$KVBENCH" compare run.jsonl run.jsonl --strict
holds "  it is the same" '^1 combinations: 1 SAME$'
for n in 1 2; do
    ok "judged alone, run $n" "$KVBENCH" run --check --set no-witness --workload plain-decode --cache seq --pool f32 --kernel reference \
        --kernel flash -o judged-$n.jsonl
done
ok "what was judged alone in both runs" "$KVBENCH" compare judged-1.jsonl judged-2.jsonl --strict --all
holds "  is compared by verdict" '^SAME .* flash .* judged alike, timed in neither run$'
holds "  and the same" '^2 combinations: 2 SAME$'
make_run base.jsonl
make_run slower.jsonl slower=flash:1.1 commit=bbbb date=2025-01-02T00:00:00Z
make_run mixed.jsonl mixed slower=flash:1.1 commit=bbbb date=2025-01-02T00:00:00Z
make_run noisy.jsonl noisy slower=flash:1.1
make_run moved.jsonl cpu_model=Other slower=flash:2

ok "a file with itself" "$KVBENCH" compare base.jsonl base.jsonl
holds "  all the same" '^30 combinations: 30 SAME$'
holds "  and says so in the end" '^no regression$'
expect_exit 1 "a kernel slower by 10 %" "$KVBENCH" compare base.jsonl slower.jsonl
holds "  is named" '^REGRESSION: kernel flash SLOWER \+10\.0 %, 15 SLOWER$'
expect_exit 0 "a kernel faster by as much" "$KVBENCH" compare slower.jsonl base.jsonl
holds "  is named" '^FASTER +kernel flash +15 +-9\.1 %'
expect_exit 1 "where null comparisons resolve no combination" "$KVBENCH" compare base.jsonl noisy.jsonl --all
holds "  all of them together show it" '^REGRESSION: kernel flash SLOWER \+10\.0 %$'
holds "  a single one does not" '^UNDECIDED .* flash '

make_run whole.jsonl nulls=1 slower=flash:1.02 slower=reference:1.01
head -n 13 whole.jsonl >one.jsonl
make_run whole.jsonl nulls=1 commit=bbbb
head -n 13 whole.jsonl >other.jsonl
ok "runs that compared one combination with itself" "$KVBENCH" compare one.jsonl other.jsonl --all
holds "  decide nothing" '^nothing decided: 12 of 12 undecided$'
holds "  what they resolve is unknown, and from how many" 'these runs can resolve: unknown \(2 null comparisons\); one run of a build does not show how runs differ'
holds "  and each interval" '^UNDECIDED .* unknown interval: too few null comparisons \(2\)$'
lacks "  which is left out" 'time .* % to '
holds "  how to decide is said" '^to decide: a duel of both builds .*, exact counts \(run --count\), or three runs of each'
expect_exit 4 "  --strict has an exit code of its own" "$KVBENCH" compare one.jsonl other.jsonl --strict --format md
holds "  Markdown says so on top" '^## kvbench: nothing decided: 12 of 12 undecided$'
holds "  and how to decide" '^To decide: a duel of both builds'
ok "what a run says that it resolves" "$KVBENCH" show base.jsonl
holds "  is a figure" '^smallest difference this run can resolve: 1\.9 % \(30 null comparisons\)$'
make_run all.jsonl slower=flash:1.1 slower=reference:1.01 # what is the very same measurement is not compared
"$KVBENCH" compare base.jsonl all.jsonl >"$out"
holds "  and the one that compare says" 'smallest difference these runs can resolve: 1\.9 % \(60 null comparisons\); one run of a build'
ok "where it is coarse" "$KVBENCH" show noisy.jsonl
holds "  that is said" '^smallest difference this run can resolve: unknown \(30 null comparisons\), so it cannot tell a change'
ok "where it is unknown" "$KVBENCH" show one.jsonl
grep -E -A 3 '^smallest difference this run can resolve: unknown \(1 null comparison\), so it cannot tell' "$out" | grep -q '^workload'
report $? "  it is said before the rows"

for format in table md csv json; do
    expect_exit 1 "all that can become of a combination, as $format" "$KVBENCH" compare base.jsonl mixed.jsonl \
        --format $format
    golden "  is as it was" compare.$format.golden
done
cp "$out" mixed.json
ok "  json is read by Python" python3 -c 'import json, sys; r = json.load(open(sys.argv[1]))
assert {x["verdict"] for x in r} >= {"BROKEN", "GONE", "SLOWER", "MORE", "UNDECIDED", "CHANGED", "FASTER", "LESS", "NEW", "SAME"}
assert all((x["regression"] == "yes") == (x["verdict"] in ("BROKEN", "GONE", "SLOWER", "MORE")) for x in r)' mixed.json

# ---- what is allowed
echo '{"kvbench_thresholds": 1, "patterns": [{"match": "*/flash/*", "time": 0.2}]}' >loose.json
ok "within a pattern's threshold" "$KVBENCH" compare base.jsonl slower.jsonl --thresholds loose.json
holds "  it is the same" '^30 combinations: 30 SAME;'
expect_exit 1 "the example of a thresholds file" "$KVBENCH" compare base.jsonl slower.jsonl \
    --thresholds "$root/ci/thresholds.json" --subset
expect_exit 2 "a pattern that matches nothing" "$KVBENCH" compare base.jsonl slower.jsonl \
    --thresholds "$root/ci/thresholds.json"
holds "  is a mistake" "thresholds.json: the pattern 'long-decode/\*' matches no combination; --subset allows that$" "$err"
one_line "  in one line"
expect_exit 0 "undecided is no regression" "$KVBENCH" compare base.jsonl moved.jsonl
holds "  the machine is told" '^note: machine: a-cpu-more-2c-8g-[0-9a-f]{8}, then other-2c-8g-[0-9a-f]{8}$'
"$KVBENCH" compare base.jsonl moved.jsonl --all >"$out"
holds "  and why no time is compared" 'another machine \(--across-machines\)'
expect_exit 4 "but has an exit code for --strict" "$KVBENCH" compare base.jsonl moved.jsonl --strict
holds "  and says what is undecided" '^no regression in what is decided: 15 of 30 undecided$'
expect_exit 1 "across machines, if asked" "$KVBENCH" compare base.jsonl moved.jsonl --across-machines
head -n 20 base.jsonl >part.jsonl
expect_exit 1 "a part of the combinations" "$KVBENCH" compare base.jsonl part.jsonl
holds "  the others are gone" '^REGRESSION: 11 GONE$'
ok "a part that is meant" "$KVBENCH" compare base.jsonl part.jsonl --subset

# ---- several runs of each build
for i in 1 2 3; do
    make_run base-$i.jsonl date=2025-01-0${i}T00:00:00Z
    make_run new-$i.jsonl slower=flash:1.1$i commit=bbbb date=2025-02-0${i}T00:00:00Z
done
expect_exit 1 "three runs of each" "$KVBENCH" compare base-[123].jsonl -- new-[123].jsonl
holds "  are one side each" '^base: base-1.jsonl \(2025-01-01T00:00:00Z, commit aaaa\) and 2 more$'
holds "  by the middle of their runs" '^SLOWER +kernel flash +15 +\+12\.0 %'
lacks "  and show how runs differ" 'taken from null comparisons'
sed '2,$s/"status": "pass", "reason": null/"status": "fail", "reason": "wrong"/' new-3.jsonl >failed.jsonl
expect_exit 1 "what fails in one of them" "$KVBENCH" compare base-[123].jsonl -- new-1.jsonl new-2.jsonl failed.jsonl
holds "  is broken" '30 BROKEN$'
expect_exit 2 "runs of two builds on one side" "$KVBENCH" compare base-1.jsonl new-1.jsonl -- new-2.jsonl
holds "  are a mistake" 'new-1.jsonl: a run of commit bbbb on .*, the others of this build have commit aaaa on ' "$err"
one_line "  in one line"
expect_exit 2 "no new run" "$KVBENCH" compare base-1.jsonl base-2.jsonl --
one_line "  is a mistake, in one line"
ok "a baseline of three runs" "$KVBENCH" compare --save three base-[123].jsonl --baselines several
holds "  is kept run by run" '^base-3.jsonl: kept as several/.*/three\.3\.jsonl$'
expect_exit 1 "and compared with" "$KVBENCH" compare --against three new-[123].jsonl --baselines several
holds "  all of it" '^base: several/.*/three.jsonl \(.*\) and 2 more$'

# ---- baselines
ok "a baseline is kept" "$KVBENCH" compare --save main base.jsonl --baselines kept
holds "  in its machine's folder" '^base.jsonl: kept as kept/a-cpu-more-2c-8g-[0-9a-f]{8}/main.jsonl$'
expect_exit 1 "and compared with" "$KVBENCH" compare --against main slower.jsonl --baselines kept
holds "  by its name" '^REGRESSION: kernel flash SLOWER'
expect_exit 2 "it is not replaced" "$KVBENCH" compare --save main slower.jsonl --baselines kept
holds "  unless that is asked" 'main.jsonl is there already; --force replaces it$' "$err"
ok "by --force" "$KVBENCH" compare --save main slower.jsonl --baselines kept --force
ok "  it is" "$KVBENCH" compare --against main slower.jsonl --baselines kept --strict
expect_exit 2 "a name that leads elsewhere" "$KVBENCH" compare --save ../main base.jsonl --baselines kept
one_line "  in one line"
expect_exit 2 "a baseline that is not there" "$KVBENCH" compare --against nope slower.jsonl --baselines kept
holds "  and those that are" "of the new run's machine there is no baseline 'nope'; known: main$" "$err"
expect_exit 2 "a baseline that another machine has" "$KVBENCH" compare --against main moved.jsonl --baselines kept
one_line "  in one line"

# ---- history
for day in 1 2 3 4 5 6 7 8; do
    make_run day$day.jsonl date=2025-02-0${day}T00:00:00Z commit=c$day slower=flash:$((day < 6 ? 1 : 13))e-$((day < 6 ? 0 : 1))
done
ok "a history" "$KVBENCH" compare --history day[5-8].jsonl day[1-4].jsonl
holds "  finds the step of a kernel" '^SLOWER +.* flash .* \+30\.0 % .*2025-02-05T00:00:00Z \(c5\) +2025-02-06T00:00:00Z \(c6\)$'
holds "  in each of its combinations, in no other" '^8 runs, 30 series: 15 changes of level;'
ok "of one run" "$KVBENCH" compare --history day1.jsonl
holds "  says that there is none yet" "^1 run: no combination was measured twice"
expect_exit 2 "over machines" "$KVBENCH" compare --history base.jsonl moved.jsonl
holds "  only if asked" '--across-machines takes both' "$err"
expect_exit 2 "of no baselines" "$KVBENCH" compare --history --baselines nowhere
holds "  says how to keep one" 'there is no baseline of this machine; --save NAME F.jsonl keeps one$' "$err"

# ---- bad input
expect_exit 2 "one file" "$KVBENCH" compare base.jsonl
one_line "  in one line"
expect_exit 2 "a file that is not there" "$KVBENCH" compare base.jsonl nowhere.jsonl
holds "  is named" 'nowhere.jsonl: No such file' "$err"
echo '{"schema": "kvbench.result/1"}' >old.jsonl
expect_exit 2 "a file of another schema" "$KVBENCH" compare old.jsonl base.jsonl
holds "  is named" 'old.jsonl:1: ' "$err"
cat base.jsonl <(tail -n 1 base.jsonl) >twice.jsonl
expect_exit 2 "a combination twice" "$KVBENCH" compare base.jsonl twice.jsonl
holds "  is named" 'holds a combination twice: plain-decode/seq/q4_0/reference/1/double$' "$err"
echo '{"kvbench_thresholds": 1, "time": "5 %"}' >bad.json
expect_exit 2 "a threshold that is no number" "$KVBENCH" compare base.jsonl base.jsonl --thresholds bad.json
holds "  is named" 'bad.json: time: expected a number of 0.001 .. 10 \(0.05 is 5 %\), or null$' "$err"
expect_exit 2 "a format" "$KVBENCH" compare base.jsonl base.jsonl --format html
one_line "  in one line"
expect_exit 2 "two things at once" "$KVBENCH" compare --history --save main base.jsonl
one_line "  in one line"
done_testing
