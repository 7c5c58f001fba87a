#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what a run has finished outlives it: killed at any moment, stopped, or out of disk, and the rest is run later.
. "$(dirname "$0")/lib.sh"

run=("$KVBENCH" run --set no-witness --workload plain-decode --pool f16 --kernel reference --kernel openblas --kernel flash
    --set sample-ms=60 --set no-null)
for cache in recompute slab contiguous seq window paged paged-prefix tree; do run+=(--cache "$cache"); done
f=$TMPDIR/f.jsonl
keys() { python3 -c 'import json, sys
for line in list(open(sys.argv[1]))[1:]:
    r = json.loads(line)
    print(*(r[k] for k in "workload cache pool_k pool_v kernel growth threads status".split()))' "$1"; }
lines() { { wc -l <"$1"; } 2>/dev/null || echo 0; } # a run that begins anew removes the file for a moment

# killed_at LINES SIGNAL FILE COMMAND…: runs it until FILE has so many lines, then kills it. Sets status.
killed_at() {
    local want=$1 signal=$2 file=$3
    shift 3
    "$@" >"$out" 2>"$TMPDIR/killed" &
    local pid=$!
    while [ "$(lines "$file")" -lt "$want" ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill "-$signal" $pid
    wait $pid 2>/dev/null
    status=$?
}

ok "a run that nobody disturbs" "${run[@]}" -o "$TMPDIR/whole.jsonl"
keys "$TMPDIR/whole.jsonl" >"$TMPDIR/whole.keys"
ok "  has 24 combinations" test "$(wc -l <"$TMPDIR/whole.keys")" -eq 24

# ---- killed again and again, each time gone on with
for at in 1 3 5 8; do
    killed_at $at KILL "$f.tmp" "${run[@]}" --resume -o "$f"
    ok "killed after $at lines: they are there, the file is not yet" \
        test $status -eq 137 -a "$(lines "$f.tmp")" -ge $at -a ! -e "$f"
done
cp "$f.tmp" "$TMPDIR/before"
ok "what is finished can be looked at" "$KVBENCH" show "$f.tmp"
holds "  and is said not to be all" '^not finished: [0-9]+ combinations of a run that still goes on, or was stopped'
ok "  as csv too" "$KVBENCH" show "$f.tmp" --format csv
holds "  beside the rows" 'note: .*f.jsonl.tmp: the records of a run that is not finished$' "$err"
printf '{"workload": "plain-dec' >>"$f.tmp" # killed in the middle of a line
expect_exit 2 "another command is refused" "${run[@]}" --seed 7 --resume -o "$f"
one_line "  in one line"
holds "  that says what differs" "f.jsonl: cannot be resumed: seed: 0 there, 7 now" "$err"
expect_exit 2 "other options" "${run[@]}" --set width=5 --resume -o "$f"
holds "  likewise" "cannot be resumed: command: … tree there, … tree --set width=5 now" "$err"
for change in 's/"version": "[^"]*"/"version": "9"/' 's/"commit": "[^"]*"/"commit": "fed"/' \
    's/"cpu_model": "[^"]*"/"cpu_model": "Z80"/' 's/"isa": "[^"]*"/"isa": "mmx"/' 's/"cores": [0-9]*/"cores": 640/' \
    's/"suite": "[^"]*"/"suite": "full"/' 's/"shard": "[^"]*"/"shard": "1\/2"/'; do
    key=$(cut -d'"' -f2 <<<"$change")
    sed "1$change" "$TMPDIR/before" >"$TMPDIR/other.jsonl.tmp"
    expect_exit 2 "what was run with another $key is refused" "${run[@]}" --resume -o "$TMPDIR/other.jsonl"
    holds "  by that name" "cannot be resumed: $key: .* there, .* now" "$err"
done
sed '2s/"plain-decode"/"agent-fork"/' "$TMPDIR/before" >"$TMPDIR/other.jsonl.tmp"
expect_exit 2 "other combinations than this run's are refused" "${run[@]}" --resume -o "$TMPDIR/other.jsonl"
holds "  by number and name" "combination 1 is agent-fork/.* in the file, plain-decode/.* now" "$err"
ok "  and stay where they were" test "$(lines "$TMPDIR/other.jsonl.tmp")" -eq "$(lines "$TMPDIR/before")"
sed '3s/^/x/' "$TMPDIR/before" >"$TMPDIR/other.jsonl.tmp"
expect_exit 2 "a damaged line is refused" "${run[@]}" --resume -o "$TMPDIR/other.jsonl"
holds "  by place" "other.jsonl.tmp:3: not valid JSON" "$err"

expect_exit 0 "the rest is run" "${run[@]}" --resume --format md --junit "$TMPDIR/f.xml" -o "$f"
holds "  and said" "note: [0-9]+ of 24 combinations were finished before" "$err"
holds "  the summary is of all" '21 passed, .* 3 skipped'
holds "  and so is what is exported" 'tests="24"' "$TMPDIR/f.xml"
ok "  the file holds all, in order" diff <(keys "$f") "$TMPDIR/whole.keys"
ok "  what was there is as it was" cmp -n "$(wc -c <"$TMPDIR/before")" "$f" "$TMPDIR/before"
ok "  and nothing lies beside it" test ! -e "$f.tmp"
cp "$f" "$TMPDIR/before"
expect_exit 0 "a finished file is gone on with: nothing is run" "${run[@]}" --resume -o "$f"
holds "  and said" "note: 24 of 24 combinations were finished before" "$err"
ok "  it stays as it was" cmp "$f" "$TMPDIR/before"
head -n -1 "$TMPDIR/before" >"$f"
expect_exit 2 "a finished file of another number of combinations is refused" "${run[@]}" --resume -o "$f"
holds "  with both numbers" "f.jsonl holds 23 combinations, this run has 24" "$err"
expect_exit 2 "--resume without -o is refused" "${run[@]}" --resume
expect_exit 2 "--resume with a timeline is refused" "${run[@]}" --resume --set timeline="$TMPDIR/t.csv" -o "$f"
expect_exit 2 "--resume of a device is refused" "${run[@]}" --resume -o /dev/null

# ---- stopped by a signal
g=$TMPDIR/g.jsonl
killed_at 4 TERM "$g.tmp" "${run[@]}" -o "$g"
ok "SIGTERM ends a run as SIGTERM does" test $status -eq 143
holds "  which says what to do" "stopped by a signal after [0-9]+ of 24 combinations; what is finished is kept: the same command with --resume" \
    "$TMPDIR/killed"
expect_exit 0 "and is gone on with" "${run[@]}" --resume -o "$g"
ok "  to the end" diff <(keys "$g") "$TMPDIR/whole.keys"

# ---- stopped after all is judged
: >"$out"
killed_at 6 TERM "$out" "$KVBENCH" run --suite quick --workload agent-fork --cache paged --kernel flash
holds "stopped while it measures: that is said" "stopped by a signal while measuring; nothing was written" "$TMPDIR/killed"

# ---- several at once
judge=("$KVBENCH" run --workload plain-decode --pool f16 --pool f32 --check)
ok "a run that judges" "${judge[@]}" --jobs 1 -o "$TMPDIR/judged.jsonl"
for at in 2 9 30; do
    killed_at $at KILL "$TMPDIR/j.jsonl.tmp" "${judge[@]}" --jobs 3 --resume -o "$TMPDIR/j.jsonl"
done
expect_exit 0 "another is killed three times and gone on with" "${judge[@]}" --jobs 3 --resume -o "$TMPDIR/j.jsonl"
ok "  its records are those of the first, to the byte" cmp <(tail -n +2 "$TMPDIR/judged.jsonl") <(tail -n +2 "$TMPDIR/j.jsonl")

# ---- failures are kept too
ok "the plug-in of crimes builds" plugin crimes "$TMPDIR/crimes.so"
crime=("$KVBENCH" run --plugin "$TMPDIR/crimes.so" --kernel crime-segfault --kernel reference --workload plain-decode
    --cache contiguous --cache seq --cache slab --pool f32 --set sample-ms=150 --set no-null)
killed_at 3 KILL "$TMPDIR/c.jsonl.tmp" "${crime[@]}" -o "$TMPDIR/c.jsonl"
ok "a crash is among what is finished" grep -q '"status": "crash"' "$TMPDIR/c.jsonl.tmp"
cp "$TMPDIR/c.jsonl.tmp" "$TMPDIR/before"
touch -d '+1 hour' "$TMPDIR/crimes.so"
expect_exit 2 "a plug-in that was changed since is refused" "${crime[@]}" --resume -o "$TMPDIR/c.jsonl"
holds "  with its name and both times" 'crimes.so was changed at 2.*Z, after that run began \(2.*Z\)' "$err"
touch -d '-1 hour' "$TMPDIR/crimes.so"
expect_exit 1 "it is not run again, and still fails the run" "${crime[@]}" --resume -o "$TMPDIR/c.jsonl"
ok "  as it was" cmp -n "$(wc -c <"$TMPDIR/before")" "$TMPDIR/c.jsonl" "$TMPDIR/before"

# ---- a disk that fills up
h=$TMPDIR/h.jsonl
echo old >"$h"
expect_exit 3 "no room for all" bash -c 'ulimit -f 40; exec "$@"' _ "${run[@]}" -o "$h"
one_line "  is one line"
holds "  with the cure" 'h.jsonl: cannot be written: File too large; what is finished is kept: the same command with --resume runs the rest' "$err"
ok "  the old file is whole" test "$(cat "$h")" = old
ok "  and so is what is kept" python3 -c 'import json, sys; assert len([json.loads(l) for l in open(sys.argv[1])]) > 1' "$h.tmp"
expect_exit 0 "with room the rest is run" "${run[@]}" --resume -o "$h"
ok "  to the end" diff <(keys "$h") "$TMPDIR/whole.keys"

mkdir "$TMPDIR/small"
if mount -t tmpfs -o size=64k none "$TMPDIR/small" 2>/dev/null; then
    trap 'umount "$TMPDIR/small"' EXIT
    s=$TMPDIR/small/s.jsonl
    expect_exit 3 "a full file system" "${run[@]}" -o "$s"
    holds "  is said" "s.jsonl: cannot be written: No space left on device; what is finished is kept" "$err"
    mount -o remount,ro "$TMPDIR/small"
    expect_exit 2 "a read-only one" "${run[@]}" --resume -o "$s"
    holds "  is said" "s.jsonl: cannot be written: Read-only file system" "$err"
    mount -o remount,rw,size=2m "$TMPDIR/small"
    expect_exit 0 "what was kept outlives both" "${run[@]}" --resume -o "$s"
    ok "  to the end" diff <(keys "$s") "$TMPDIR/whole.keys"
fi
done_testing
