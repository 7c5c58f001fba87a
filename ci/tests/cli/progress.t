#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: a long run says what it does, in lines where stderr is no terminal and in one line where it is; whoever stops it, in a
# combination or while it prepares, gets what is finished, and the rest with --resume.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/crimes.so
ok "the plug-in of crimes builds" plugin crimes "$so"
# one combination that passes, one that crashes, one that hangs
run=("$KVBENCH" run --set no-witness --plugin "$so" --kernel crime-none --kernel crime-segfault --kernel crime-hang --workload plain-decode
    --cache contiguous --pool f32 --set sample-ms=1 --set no-null)

expect_exit 1 "a run of some seconds" env KVB_PROGRESS=1 "${run[@]}" --timeout 3
holds "  says what is done and what is going on" \
    '^kvbench run: \[2/3\] 1 not passed, [0-9]+ s, about [0-9]+ s left: plain-decode, contiguous, f32, f32, crime-hang' "$err"
lacks "  without a terminal's signs" $'[\r\033]' "$err"
lacks "  and not among the results" '^kvbench run: ' "$out"
expect_exit 1 "without lines" env KVB_PROGRESS=0 "${run[@]}" --timeout 1
ok "  stderr is empty" test ! -s "$err"
expect_exit 1 "on a terminal" script -qec "${run[*]} --timeout 2" "$TMPDIR/typed"
holds "  it is one line, rewritten" $'\r\033\\[K\\[2/3\\] 1 not passed, [0-9]+ s, about .*\r\033\\[K' "$TMPDIR/typed"

# ---- what is timed has the machine alone: no other child runs meanwhile
: >"$rows"
"${run[@]}" --timeout 100 --set sample-ms=1500 --format csv >"$rows" 2>"$said" &
pid=$!
most=0
while ! grep -q '^.*crime-segfault' "$rows" && kill -0 $pid 2>/dev/null; do
    n=$(ps -o pid= --ppid $pid | wc -l)
    most=$((n > most ? n : most))
    sleep 0.05
done
report $((most != 1)) "what is timed is the only child"
kill -TERM $pid
wait $pid
f=$TMPDIR/f.jsonl
for how in "" "--check --jobs 2"; do
    # shellcheck disable=SC2086 # words
    stopped '\[2/3\].*crime-hang' "${run[@]}" --timeout 100 --format csv -o "$f" $how
    report $((status != 143)) "stopped in a combination${how:+ of $how}"
    ok "  its rows were there before its end" diff <(cut -d, -f 4,6 "$rows.before") <(printf '%s\n' kernel,status crime-none,pass crime-segfault,crash)
    holds "  at once, and what is finished is printed" '^1 passed, 0 failed, 1 crashed, 0 timed out, 0 skipped in [0-9]{1,2} s$' "$said"
    holds "  as a part" '^stopped after 2 of 3 combinations$' "$said"
    holds "  and how to go on is said" 'stopped by a signal after 2 of 3 combinations; .* with --resume runs the rest' "$said"
    ok "  and kept" test "$(wc -l <"$f.tmp")" -eq 3
    rm "$f.tmp"
done
stopped 'oracle of long-decode, f32, f32' "$KVBENCH" run --set no-witness --workload long-decode --cache contiguous --pool f32 --kernel flash \
    --check --set oracle-pairs=100G
report $((status != 143)) "stopped while the oracle is made"
holds "  long before its end" '^0 passed, .* in [0-9]{1,2} s$' "$rows"

# ---- tables on a terminal of 60 columns; elsewhere they are as wide as ever
# typed WORDS…: what a terminal of 60 columns shows of `kvbench show` of a file in which two combinations did not pass
"${run[@]}" --timeout 1 --check -o "$TMPDIR/t.jsonl" >"$out" 2>"$err"
typed() { script -qec "stty cols 60; env $1 $KVBENCH show $TMPDIR/t.jsonl $2" /dev/null | tr -d '\r' >"$out"; }
widest() { sed 's/\x1b\[[0-9;]*m//g' "$out" | awk '/^workload/ { on = 1 } /^.left/ { exit } on' | wc -L; }
plain='NO_COLOR=1'
typed TERM=xterm --all
holds "what passed is green" $'\033\\[32mpass\033\\[0m'
holds "what did not is red" $'\033\\[31mcrash\033\\[0m'
ok "a table fits its terminal" test "$(widest)" -le 60
typed $plain --all
lacks "NO_COLOR is heeded" $'\033'
holds "columns that are left out are named" '^\(left out to fit the terminal: .*peak.*; --wide shows all\)$'
typed $plain "--all --color=always"
holds "but --color=always is stronger" $'\033\\[31mcrash'
typed $plain "--all --wide"
holds "--wide shows all" '^workload .* status .* peak +reason$'
"$KVBENCH" run --set no-witness --workload plain-decode --cache seq --pool f16 --kernel flash --set sample-ms=1 --set no-null \
    --set no-machine -o "$TMPDIR/timed.jsonl" >"$out" 2>"$err"
for columns in 60 80 100; do
    script -qec "stty cols $columns; env $plain $KVBENCH show $TMPDIR/timed.jsonl --all" /dev/null | tr -d '\r' >"$out"
    holds "$columns columns show times" '^workload +cache .* status .*median'
done
ok "no terminal, no colours" "$KVBENCH" show "$TMPDIR/t.jsonl" --all
lacks "  none" $'\033'
expect_exit 2 "a colour that is no choice" "$KVBENCH" show "$TMPDIR/t.jsonl" --color sometimes
holds "  is refused" "unknown choice 'sometimes'; .*known: auto, always, never" "$err"
done_testing
